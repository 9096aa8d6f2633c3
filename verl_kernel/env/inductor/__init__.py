# SPDX-License-Identifier: Apache-2.0
"""`torch.compile` without a GPU: what Inductor writes for a reference, as a program that the gym can time."""
