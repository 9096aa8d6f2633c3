# SPDX-License-Identifier: Apache-2.0
"""The page `/docs` of a service: every request with its fields and a line of curl; it loads nothing from elsewhere."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from verl_kernel.reporting.pages import page_environment

_BODIES = {
    "/v1/tasks": {"reference": "class Model(nn.Module): ...", "task_id": "mine"},
    "/v1/evaluations": {
        "evaluations": [{"task": {"reference": "class Model(nn.Module): ..."}, "source": "class ModelNew: ..."}],
        "wait_s": 30,
    },
}
"""Bodies for the examples, by path."""


@dataclass(frozen=True)
class ServedRequest:
    """One request that the service answers."""

    method: str
    path: str
    what: str
    parameters: list[tuple[str, str, str]]
    """Name, type and where it stands."""
    answers: list[tuple[str, str]]
    curl: str


def requests_page(schema: Mapping[str, Any]) -> str:
    """Return the page for a service whose requests an OpenAPI schema describes."""
    template = page_environment("verl_kernel.service").get_template("requests.html")
    schemas = {name: list(_fields(fields)) for name, fields in schema["components"]["schemas"].items()}
    return template.render(title=schema["info"]["title"], version=schema["info"]["version"],
                           requests=list(_requests(schema)), schemas=schemas)  # fmt: skip


def _requests(schema: Mapping[str, Any]) -> Iterator[ServedRequest]:
    for path, methods in schema["paths"].items():
        for method, facts in methods.items():
            parameters = [(field["name"], _kind(field["schema"]), field["in"]) for field in facts.get("parameters", ())]
            if "requestBody" in facts:
                body = facts["requestBody"]["content"]["application/json"]["schema"]
                parameters.append(("", _kind(body), "body"))
            answers = [(status, answer["description"]) for status, answer in facts["responses"].items()]
            yield ServedRequest(
                method.upper(), path, facts["description"], parameters, answers, _curl(method.upper(), path)
            )


def _curl(method: str, path: str) -> str:
    words = ["curl", *([] if method == "GET" else ["-X", method]), f"http://127.0.0.1:8008{path}"]
    if method == "POST" and (body := _BODIES.get(path)):
        words += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
    return shlex.join(words)


def _fields(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and description of each field."""
    for name, field in schema.get("properties", {}).items():
        needed = "" if name in schema.get("required", ()) else "; may be left out"
        yield name, _kind(field) + needed, field.get("description", "")


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_kind(arm) for arm in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return " or ".join(map(str, schema.get("enum", ()))) or str(schema.get("type", "anything"))
