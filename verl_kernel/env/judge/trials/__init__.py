# SPDX-License-Identifier: Apache-2.0
"""Trials: which inputs they take, where the special ones lie, and a survey of a candidate over many of them."""
