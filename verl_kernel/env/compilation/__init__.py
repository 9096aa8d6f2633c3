# SPDX-License-Identifier: Apache-2.0
"""What a candidate's launches become under Triton's own compiler, without a GPU."""
