# SPDX-License-Identifier: Apache-2.0
"""What the checks have found in this process since it was last asked, in the form that travels to the judge."""

from __future__ import annotations

from dataclasses import asdict, dataclass

MOST = 16
"""Findings of a forward that are kept."""


@dataclass(frozen=True)
class Finding:
    """One fault; unknown is None."""

    kind: str
    """`out_of_bounds_load`, `out_of_bounds_store`, `uninitialised_read` or `race`."""
    kernel: str
    line: int | None
    """In the candidate's file."""
    argument: str | None = None
    """Of the kernel."""
    offset: int | None = None
    """Element of the argument, counted from its first."""
    program: tuple[int, ...] | None = None
    """Index of the program in its grid."""
    access: str | None = None
    """What it does: `load`, `store` or `atomic`."""
    other_line: int | None = None
    """Of the access that a race is with; likewise the next two."""
    other_program: tuple[int, ...] | None = None
    other_access: str | None = None


class Findings:
    """Findings in the order in which they were made, one for each pair of lines."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], Finding] = {}

    def note(self, finding: Finding) -> None:
        """Keep a finding, unless a like one is there."""
        key = (finding.kind, finding.kernel, finding.line, finding.argument, finding.other_line)
        if key in self._found or len(self._found) < MOST:
            self._found.setdefault(key, finding)

    def take(self) -> list[dict[str, object]]:
        """All of them as JSON values; they are forgotten here."""
        found, self._found = self._found, {}
        return [asdict(finding) for finding in found.values()]


FINDINGS = Findings()
"""Those of this process."""
