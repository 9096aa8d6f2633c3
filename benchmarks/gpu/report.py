# SPDX-License-Identifier: Apache-2.0
"""`report.json` and `report.md` from the findings so far; written anew after every section."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu import findings

JSON, MARKDOWN = "report.json", "report.md"
_CELL = 160


def write(out: Path, order: Sequence[str], pretend: bool) -> None:
    """Write both files for the sections in `order`."""
    sections = collect(findings.read(out), order)
    (out / JSON).write_text(json.dumps({"pretend": pretend, "sections": sections}, indent=1))
    (out / MARKDOWN).write_text(markdown(sections, pretend))


def summary(out: Path) -> str:
    """What `report.md` says before it goes into sections: how each ended, and every check that did not hold."""
    return "\n## ".join((out / MARKDOWN).read_text().split("\n## ")[:2])


def collect(lines: Iterable[dict[str, Any]], order: Sequence[str]) -> dict[str, Any]:
    """Findings by section: state, seconds, facts, tables (lists of rows), checks and what is unknown."""
    sections: dict[str, Any] = {name: _empty() for name in order}
    for line in lines:
        section = sections.setdefault(line["section"], _empty())
        match line["kind"]:
            case "fact":
                section["facts"][line["name"]] = line["value"]
            case "row":
                section["tables"].setdefault(line["table"], []).append(line["columns"])
            case "outcome":
                section.update({key: line[key] for key in ("state", "seconds", "last_words")})
            case kind:
                entry = {key: value for key, value in line.items() if key not in ("kind", "section")}
                section["checks" if kind == "check" else "unknown"].append(entry)
    return sections


def _empty() -> dict[str, Any]:
    return {
        "state": "not begun",
        "seconds": 0.0,
        "last_words": "",
        "facts": {},
        "tables": {},
        "checks": [],
        "unknown": [],
    }


def markdown(sections: dict[str, Any], pretend: bool) -> str:
    """The same for readers: first what held and what did not, then section by section."""
    title = "# Report of bench_gpu.py" + (": a pretended GPU, whose times mean nothing" if pretend else "")
    parts = [title, "## Summary", table([_line(name, section) for name, section in sections.items()])]
    failed = [
        {"section": name, "does not hold": check["what"], "detail": check["detail"]}
        for name, section in sections.items() for check in section["checks"] if not check["held"]
    ]  # fmt: skip
    parts += [table(failed) if failed else "Every check that was made held."]
    for name, section in sections.items():
        parts += [f"## {name}", *_body(section)]
    return "\n\n".join(parts) + "\n"


def _line(name: str, section: dict[str, Any]) -> dict[str, Any]:
    held = sum(check["held"] for check in section["checks"])
    checks = f"{held} of {len(section['checks'])}" if section["checks"] else ""
    return {"section": name, "state": section["state"], "seconds": section["seconds"], "checks held": checks}


def _body(section: dict[str, Any]) -> Iterable[str]:
    if section["last_words"]:
        yield f"It ended as `{section['state']}`. Its last words:\n\n```text\n{section['last_words']}\n```"
    if section["checks"]:
        yield table(
            [{"check": one["what"], "held": _word(one["held"]), "detail": one["detail"]} for one in section["checks"]]
        )
    if section["unknown"]:
        yield table([{"not known": one["what"], "why": one["why"]} for one in section["unknown"]])
    short = [{"fact": name, "value": value} for name, value in section["facts"].items() if "\n" not in str(value)]
    if short:
        yield table(short)
    for name, value in section["facts"].items():
        if "\n" in str(value):
            yield f"{name}:\n\n```text\n{value}\n```"
    for name, rows in section["tables"].items():
        yield f"### {name}"
        yield table(rows)


def _word(held: bool) -> str:
    return "yes" if held else "NO"


def table(rows: Sequence[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns), *[[_cell(row.get(name)) for name in columns] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: object) -> str:
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= _CELL else text[:_CELL] + " ..."
