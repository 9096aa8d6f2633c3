# SPDX-License-Identifier: Apache-2.0
"""The process in which a candidate's compiled kernels run, apart from its host code."""
