# SPDX-License-Identifier: Apache-2.0
"""Tasks that are too large for the interpreter: which copies of them are judged, and what the true size shows."""
