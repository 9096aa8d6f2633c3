# SPDX-License-Identifier: Apache-2.0
"""Exceptions that the emulator raises."""

from __future__ import annotations


class NotKnown(Exception):
    """PTX that the emulator has no definition for; the message quotes it. Never a guess, never a candidate's fault."""


class Fault(Exception):
    """A launch did what no GPU defines, or did not end; the message names what happened, the line and the lane."""

    def __init__(
        self,
        kind: str,
        message: str,
        line: tuple[str, int] | None = None,
        address: int = 0,
        depends_on_data: bool = True,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        """One of the values of `kernel.FAULTS`."""
        self.line = line
        """File and line of the source, or None if the PTX names none."""
        self.address = address
        """The address that was accessed."""
        self.depends_on_data = depends_on_data
        """Whether other values in memory may have it happen elsewhere, or not at all."""
