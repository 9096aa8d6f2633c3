# SPDX-License-Identifier: Apache-2.0
"""Commands for the pool of judges of a running cluster."""
