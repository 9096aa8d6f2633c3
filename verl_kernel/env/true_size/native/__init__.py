# SPDX-License-Identifier: Apache-2.0
"""Launches on tensors without data, where kernels run compiled: sampled, and held against it."""
