# SPDX-License-Identifier: Apache-2.0
"""The trusted side of an evaluation."""
