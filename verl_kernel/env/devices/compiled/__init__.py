# SPDX-License-Identifier: Apache-2.0
"""A CPU whose kernels run compiled, in a process of their own."""
