# SPDX-License-Identifier: Apache-2.0
"""Communication between the gym's processes: messages, and tensors in shared memory."""
