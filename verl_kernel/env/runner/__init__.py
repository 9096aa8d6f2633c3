# SPDX-License-Identifier: Apache-2.0
"""All that runs in the zygote and in the untrusted runner, and nothing else."""
