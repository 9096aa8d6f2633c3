# SPDX-License-Identifier: Apache-2.0
"""The numbers that stand in PTX."""

from __future__ import annotations

import struct


def bits_of(text: str, bits: int) -> int:
    """The bits of a literal, in a register of so many."""
    if text in ("true", "false"):
        return int(text == "true")
    kind, digits = text[:2].lower(), text.rstrip("U")
    if kind == "0f":
        value = int(text[2:], 16)
        return _float_bits(struct.unpack("<f", struct.pack("<I", value))[0], 64) if bits == 64 else value
    if kind == "0d":
        return _float_bits(struct.unpack("<d", struct.pack("<Q", int(text[2:], 16)))[0], bits)
    if kind != "0x" and set(text) & set(".eE"):
        return _float_bits(float(text), bits)
    is_octal = text.startswith("0") and kind != "0x"
    return int(digits, 8 if is_octal else 0)


def _float_bits(value: float, bits: int) -> int:
    """A floating literal, which is a float64 that is rounded where it is used."""
    kind, whole = ("<d", "<Q") if bits == 64 else ("<f", "<I")
    return int(struct.unpack(whole, struct.pack(kind, value))[0])
