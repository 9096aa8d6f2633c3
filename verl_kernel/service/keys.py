# SPDX-License-Identifier: Apache-2.0
"""API keys, each with a namespace: a client sees the tasks, evaluations and errors of its own namespace only."""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from verl_kernel.errors import ConfigError

OPERATOR = "operator"
"""The namespace that may see the pool's figures and drain the service."""
_SHORTEST = 16
"""Smallest number of characters of a key."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class Keys:
    """The namespaces by the SHA-256 of their keys, so that how long a lookup takes says nothing of a key."""

    by_digest: Mapping[bytes, str]
    """Empty if no key is asked for."""

    def namespace(self, authorization: str | None) -> str | None:
        """Return the namespace of a header `Authorization: Bearer KEY`; None if the key is unknown or missing.

        Where no key is asked for, everybody is in the namespace with the empty name.
        """
        if not self.by_digest:
            return ""
        scheme, _, key = (authorization or "").partition(" ")
        return self.by_digest.get(_digest(key.strip())) if scheme.lower() == "bearer" else None

    def is_operator(self, namespace: str) -> bool:
        """Tell whether a namespace may see and control the whole service."""
        return not self.by_digest or namespace == OPERATOR


def read_keys(path: str | None) -> Keys:
    """Read a file of keys: a namespace and a key in each line, parted by a space; `#` begins a comment.

    Raises:
        ConfigError: the file cannot be read, other users may read it, or a line is not as it should be.
    """
    if path is None:
        return Keys({})
    try:
        text, mode = Path(path).read_text(encoding="utf-8"), Path(path).stat().st_mode
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"serve.keys is {path}, which cannot be read: {exc}") from exc
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"serve.keys is {path}, which other users can read or change: chmod 600 {path}")
    return Keys(dict(_pairs(path, text)))


def _pairs(path: str, text: str) -> Iterator[tuple[bytes, str]]:
    names, digests = set[str](), set[bytes]()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not _NAME.fullmatch(words[0]) or len(words[1]) < _SHORTEST:
            raise ConfigError(
                f"line {number} of {path} is no key: it must hold a namespace of lower-case letters, digits, `_`, `.` "
                f"and `-`, a space and a key of {_SHORTEST} characters or more"
            )
        name, digest = words[0], _digest(words[1])
        if name in names or digest in digests:
            raise ConfigError(f"line {number} of {path} names a namespace or a key that an earlier line has")
        names.add(name)
        digests.add(digest)
        yield digest, name
    if not names:
        raise ConfigError(f"serve.keys is {path}, which holds no key: write a namespace and a key in a line")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
