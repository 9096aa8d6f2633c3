# SPDX-License-Identifier: Apache-2.0
"""Verdicts on disk, for runs that judge the same candidates again (`kernelgym.verdict_cache`).

A key is a hash of task, source, options, versions and this package's code. So the same answer to the same task has the
same verdict in all runs and steps. Only verdicts of a simulated clock are stored, as its times are computed, not
measured. Inputs are then drawn once per candidate, not at every evaluation; so the folder is for studies. Entries are
JSON files that appear by rename. An entry that cannot be validated counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from pydantic import ValidationError

from verl_kernel.env.options import GymOptions
from verl_kernel.env.reference.disk_cache import code_hash
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.errors import ConfigError
from verl_kernel.files import replacing

_LOG = logging.getLogger(__name__)
_UNSURE = frozenset({EvalStatus.TIMEOUT, EvalStatus.OOM, EvalStatus.CRASH, EvalStatus.INFRA_ERROR})
"""Statuses that may depend on how busy the machine was."""


class VerdictStore:
    """A folder of verdicts.

    Args:
        folder: made if missing.
        options: how candidates are judged.

    Raises:
        ConfigError: the folder cannot be made or written to.
    """

    def __init__(self, folder: str, options: GymOptions) -> None:
        self._folder = Path(folder)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self._folder).close()
        except OSError as exc:
            raise ConfigError(
                f"kernelgym.verdict_cache is {folder!r}, where nothing can be written ({exc.strerror}): "
                f"name another folder, or null"
            ) from exc
        # Another version of any of these may decide otherwise.
        versions = (platform.python_version(), torch.__version__, version("triton"), code_hash())
        # Noise is added after an entry is read.
        relevant_options = {key: getattr(options, key) for key in options.judging_keys() if key != "timing_noise"}
        self._common = "\0".join((*versions, json.dumps(relevant_options, sort_keys=True, default=str)))

    def load(self, request: EvalRequest, is_compiled: bool) -> EvalResult | None:
        """Return the stored verdict on a candidate, without the stages' seconds; None if there is none.

        Args:
            request: of the evaluation.
            is_compiled: whether the candidate goes through the compile stage.
        """
        path = self._path(request, is_compiled)
        try:
            return EvalResult.model_validate(json.loads(path.read_bytes()) | {"kernel": request.kernel})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, ValidationError) as exc:
            _LOG.warning("%s is damaged and will be written again: %s: %s", path, type(exc).__name__, exc)
            return None

    def save(self, request: EvalRequest, is_compiled: bool, result: EvalResult) -> None:
        """Store a verdict that a second evaluation would repeat; a full disk causes a warning."""
        if result.status in _UNSURE:  # on a quieter machine it might be another one
            return
        path = self._path(request, is_compiled)
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with replacing(path, is_shared=True) as part:
                part.write_text(result.model_copy(update={"stage_seconds": {}}).model_dump_json(), encoding="utf-8")
        except OSError as exc:
            _LOG.warning("%s cannot be stored: %s", path, exc)

    def _path(self, request: EvalRequest, is_compiled: bool) -> Path:
        parts = (self._common, request.task.cache_key, str(is_compiled), str(request.validate), request.source)
        name = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
        return self._folder / name[:2] / f"{name}.json"  # 256 folders, as one of a million files is slow to list
