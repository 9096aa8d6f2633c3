# SPDX-License-Identifier: Apache-2.0
"""Sub-commands of `verl-kernel`; each module is imported when its command is called."""
