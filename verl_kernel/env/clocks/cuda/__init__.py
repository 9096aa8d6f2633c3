# SPDX-License-Identifier: Apache-2.0
"""The clock of a GPU: rounds of timed requests, cross-checked by the judge."""
