# SPDX-License-Identifier: Apache-2.0
"""A pool of judges on a Ray cluster."""
