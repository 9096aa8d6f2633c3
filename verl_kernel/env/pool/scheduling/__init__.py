# SPDX-License-Identifier: Apache-2.0
"""Which judge serves which request next, and how often it is tried."""
