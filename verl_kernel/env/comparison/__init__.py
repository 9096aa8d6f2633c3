# SPDX-License-Identifier: Apache-2.0
"""Whether two outputs agree: scales, tolerances, and what TF32 may change."""
