# SPDX-License-Identifier: Apache-2.0
"""The choice of the judge for each request, and the number of attempts."""
