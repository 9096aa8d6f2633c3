# SPDX-License-Identifier: Apache-2.0
"""Defects that make a reference a poor task: passing answers without a kernel, inputs and weights without effect."""
