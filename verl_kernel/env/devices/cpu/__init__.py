# SPDX-License-Identifier: Apache-2.0
"""Triton's interpreter as a device: kernels run on the host, counted and priced by a nominal GPU."""
