# SPDX-License-Identifier: Apache-2.0
"""Memory checks in Triton's interpreter: accesses outside of tensors, reads of what nobody wrote, races of programs."""
