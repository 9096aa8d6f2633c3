# SPDX-License-Identifier: Apache-2.0
"""The kinds of inputs that a trial may take."""

from __future__ import annotations

from typing import Literal, get_args

Kind = Literal["drawn", "varied", "large", "negative", "positive"]
"""Inputs as `get_inputs()` draws them; with other scales, signs and rare values; enlarged; with every tensor at one end
of its range: numbers of one sign, far from zero, masks all unset or all set, integers in the lowest or highest part."""
KINDS: tuple[Kind, ...] = get_args(Kind)
ENDS: tuple[Kind, ...] = ("negative", "positive")
