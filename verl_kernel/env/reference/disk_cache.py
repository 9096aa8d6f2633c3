# SPDX-License-Identifier: Apache-2.0
"""Preparations of references on disk, shared by judges and kept over restarts (`kernelgym.reference_cache`).

A key is a hash of the task, the device, the versions of Python, torch and Triton, and this package's own code. Each
key has an index file `<key>.json` (the tree of arguments, traits, trace, layout of tensors, name and SHA-256 of the
tensor file) beside `<key>-<hash>.safetensors`. Files appear by rename, so that writers cannot disturb each other or a
reader; an entry whose hash does not match counts as absent and is written again. Nothing is ever unpickled, and no
expected output is stored.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

import verl_kernel
from verl_kernel.env.ipc.shared_memory import DTYPES, TensorSpec
from verl_kernel.env.machine.roofline import Demand
from verl_kernel.env.reference.preparation import Preparation, Traits
from verl_kernel.env.reference.value import Value
from verl_kernel.env.task import Task
from verl_kernel.env.trace import dump_events, load_events
from verl_kernel.errors import ConfigError
from verl_kernel.files import replacing

_LOG = logging.getLogger(__name__)
_PACKAGE = Path(verl_kernel.__file__).parent / "env"


class ReferenceCache:
    """A folder of preparations.

    Args:
        folder: path, created if missing.
        device: name of the device that the judges use.

    Raises:
        ConfigError: the folder cannot be made or written to.
    """

    def __init__(self, folder: str, device: str) -> None:
        self._folder, self._device = Path(folder), device
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self._folder).close()  # refused now, and not at the first task
        except OSError as exc:
            raise ConfigError(
                f"kernelgym.reference_cache is {folder!r}, where nothing can be written ({exc.strerror}): "
                f"name another folder, or null"
            ) from exc

    def load(self, task: Task) -> Preparation | None:
        """Load the stored preparation of a task, or None."""
        path = self._index(task)
        try:
            index = json.loads(path.read_bytes())
            data = (self._folder / str(index["tensors"])).read_bytes()
            # With a damaged weight the reference would refuse every candidate.
            if hashlib.sha256(data).hexdigest() != index["sha256"]:
                raise ValueError("the tensors are not those that the index names")
            return _read(index, data)
        except FileNotFoundError:
            return None
        except Exception as exc:  # noqa: BLE001  a damaged file may raise any exception; all mean the same
            _LOG.warning("%s is damaged and will be written again: %s: %s", path, type(exc).__name__, exc)
            return None

    def save(self, task: Task, preparation: Preparation) -> None:
        """Store the preparation of a task; a full disk only causes a warning."""
        from safetensors.torch import save

        path = self._index(task)
        named = _named(preparation)
        # Clones: safetensors refuses tensors that share memory.
        data = save({name: tensor.contiguous().clone() for name, tensor in named.items()})
        digest = hashlib.sha256(data).hexdigest()
        tensors = f"{path.stem}-{digest[:16]}.safetensors"
        index = {"tensors": tensors, "sha256": digest, "task": task.cache_key, **_describe(preparation, named)}
        try:
            self._write(tensors, data)  # before the index, which must never name a missing file
            self._write(path.name, json.dumps(index).encode())
        except OSError as exc:
            _LOG.warning("%s cannot be stored: %s", path, exc)

    def load_facts(self, task: Task, name: str) -> Any:
        """Load further facts about a task, as JSON, that are stored under a name; None if there are none."""
        path = self._facts(task, name)
        try:
            return json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as exc:
            _LOG.warning("%s is damaged and will be written again: %s: %s", path, type(exc).__name__, exc)
            return None

    def save_facts(self, task: Task, name: str, facts: Any) -> None:
        """Store further facts about a task, as JSON; a full disk only causes a warning."""
        path = self._facts(task, name)
        try:
            self._write(path.name, json.dumps(facts).encode())
        except OSError as exc:
            _LOG.warning("%s cannot be stored: %s", path, exc)

    def _facts(self, task: Task, name: str) -> Path:
        path = self._index(task)
        return path.with_name(f"{path.stem}-{name}.json")

    def _write(self, name: str, data: bytes) -> None:
        with replacing(self._folder / name, is_shared=True) as part:
            part.write_bytes(data)

    def _index(self, task: Task) -> Path:
        # Another version may draw other weights or inputs from the same seed.
        versions = (platform.python_version(), torch.__version__, version("triton"), code_hash())
        key = "\0".join((task.cache_key, self._device, *versions))
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def _named(preparation: Preparation) -> dict[str, torch.Tensor]:
    init = {f"init.{number}": tensor for number, tensor in enumerate(preparation.init.tensors)}
    return init | {f"state.{name}": tensor for name, tensor in preparation.state.items()}


def _describe(preparation: Preparation, named: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    return {
        "init": preparation.init.tree,
        "traits": asdict(preparation.traits),
        "events": dump_events(preparation.events),
        "demand": asdict(preparation.demand),
        "layout": {name: TensorSpec.of(tensor).to_json() for name, tensor in named.items()},
    }


def _read(index: dict[str, Any], data: bytes) -> Preparation:
    from safetensors.torch import load

    flat = load(data)
    named = {name: _laid_out(flat[name], TensorSpec.from_json(spec)) for name, spec in index["layout"].items()}
    init = [tensor for name, tensor in named.items() if name.startswith("init.")]
    state = {name.removeprefix("state."): tensor for name, tensor in named.items() if name.startswith("state.")}
    # Lists of JSON become the tuples of the classes.
    events, traits = load_events(index["events"]), TypeAdapter(Traits).validate_python(index["traits"])
    return Preparation(Value(index["init"], init), state, events, Demand(**index["demand"]), traits)


def _laid_out(flat: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    # With the strides it had: a reference may view its weights in a way that others do not allow.
    return torch.empty_strided(spec.shape, spec.stride, dtype=DTYPES[spec.dtype]).copy_(flat)


@lru_cache(maxsize=1)
def code_hash() -> str:
    """Hash the package's code, so that a version with another clock does not read traces that this one stored."""
    files = sorted(_PACKAGE.rglob("*.py"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
