# SPDX-License-Identifier: Apache-2.0
"""The code of the zygote and of the untrusted runner; no other process executes it."""
