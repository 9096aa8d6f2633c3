# SPDX-License-Identifier: Apache-2.0
"""Tasks that are too large to run: which reduced copies are judged, and how the true size is timed."""
