# SPDX-License-Identifier: Apache-2.0
"""The gym: judges candidate kernels. Imports torch and triton, never verl; ray only in `pool.py`."""
