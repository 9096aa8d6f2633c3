# SPDX-License-Identifier: Apache-2.0
"""Programs with kernels of other people's packages, and their verdicts (`make test-published`)."""
