# SPDX-License-Identifier: Apache-2.0
"""What processes of the gym hand each other: messages, and tensors in shared memory."""
