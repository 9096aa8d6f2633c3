# SPDX-License-Identifier: Apache-2.0
"""Tasks that are too large to be run whole: which copies of them are judged, and what the true size shows."""
