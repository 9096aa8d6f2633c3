# SPDX-License-Identifier: Apache-2.0
"""Reads what a runner's memory checks report, and says it in a sentence.

A runner executes its candidate, so a report is a claim. It can cost a candidate its reward and earn it nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from verl_kernel.env.ipc.messages import Claims
from verl_kernel.env.result import MemoryFinding

_MOST = 32
"""Findings of an evaluation that are kept."""
_KINDS = {
    "out_of_bounds_load": "OutOfBoundsLoad",
    "out_of_bounds_store": "OutOfBoundsStore",
    "uninitialised_read": "UninitialisedRead",
    "race": "Race",
}


def with_reported(known: Sequence[MemoryFinding], reply: Claims) -> tuple[MemoryFinding, ...]:
    """The known findings and those of another forward, one for each pair of lines.

    Raises:
        ValueError: no runner of ours reports that.
        LookupError: the reply says neither what was found nor that the forward failed.
    """
    reported = reply.get("memory", []) if "failure" in reply else reply["memory"]
    if not isinstance(reported, list) or len(reported) > _MOST:
        raise ValueError(f"memory findings must be a list of at most {_MOST}")
    findings = [*known, *(MemoryFinding.model_validate_json(json.dumps(item), strict=True) for item in reported)]
    kept = {(item.kind, item.kernel, item.line, item.argument, item.other_line): item for item in reversed(findings)}
    return tuple(reversed(kept.values()))[:_MOST]


def described(finding: MemoryFinding) -> tuple[str, str]:
    """The type of the error that a finding is, and a sentence."""
    where = f"{_line(finding.line)}, in kernel {finding.kernel}"
    return _KINDS[finding.kind], f"{where}: {_SENTENCES[finding.kind](finding)}"


def _outside(finding: MemoryFinding) -> str:
    near = "" if finding.argument is None else f", at element {finding.offset} of {finding.argument}"
    return (
        f"{_an(finding.access)} lies outside the tensors of the launch{near} (program {_program(finding.program)}): "
        "check the mask and the grid"
    )


def _unwritten(finding: MemoryFinding) -> str:
    return (
        f"{_an(finding.access)} reads element {finding.offset} of {finding.argument}, which nobody has written "
        f"(program {_program(finding.program)}): allocate it with torch.zeros, or store to it first"
    )


def _race(finding: MemoryFinding) -> str:
    return (
        f"{_an(finding.access)} (program {_program(finding.program)}) and {_an(finding.other_access)} in "
        f"{_line(finding.other_line)} (program {_program(finding.other_program)}) touch element {finding.offset} of "
        f"{finding.argument} and nothing puts them in order: give each program elements of its own, use atomics, or "
        "launch a second kernel"
    )


_SENTENCES = {
    "out_of_bounds_load": _outside,
    "out_of_bounds_store": _outside,
    "uninitialised_read": _unwritten,
    "race": _race,
}


def _line(line: int | None) -> str:
    return "an unknown line" if line is None else f"line {line}"


def _program(index: Sequence[int] | None) -> str:
    return "unknown" if index is None else f"({', '.join(map(str, index))})"


def _an(access: str | None) -> str:
    return {"atomic": "an atomic", None: "an access"}.get(access, f"a {access}")
