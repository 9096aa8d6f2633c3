# SPDX-License-Identifier: Apache-2.0
"""Programs that recipes of this repository need and the installed package does not."""
