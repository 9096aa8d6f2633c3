# SPDX-License-Identifier: Apache-2.0
"""Checks the checkpoint that a run would resume: verl takes whatever `trainer.default_local_dir` holds.

A checkpoint of another number of processes or another model ends the run once the model and vLLM are loaded; one of
another method is trained on without a word. So every start notes its settings beside its checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from verl_kernel.errors import ConfigError
from verl_kernel.preflight.hardware import devices
from verl_kernel.verl_keys import find, read

RECORD = "started_with.json"
"""File beside the checkpoints with the settings of the run that writes them."""
_MODEL = "actor_rollout_ref.model.path"
_STRATEGY = "actor_rollout_ref.actor.strategy"
_FOLDER, _MODE, _PATH = "trainer.default_local_dir", "trainer.resume_mode", "trainer.resume_from_path"
_ACTOR = "actor_rollout_ref.actor"
SETTINGS = (
    *(_MODEL, "algorithm.adv_estimator", "algorithm", "kernelgym.reward", "kernelgym.max_turns"),
    *(f"{_ACTOR}.{key}" for key in ("policy_loss", "loss_agg_mode", "clip_ratio_low", "clip_ratio_high")),
)
"""Keys and nodes that make a run another experiment. Sizes, limits and rates may change when a run goes on."""
_FILES = ("_dir", "_file")
"""Ends of keys that say where a run writes, which may have moved."""
_SIZES = ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size")
_VERSIONS = {1: "fsdp", 2: "fsdp2"}


def check_resumed(config: DictConfig) -> None:
    """Check that the checkpoint that verl would resume is one of this run.

    Raises:
        ConfigError: it was written by another number of processes, for another model or by another method.
    """
    if (step := _resumed(config)) is None:
        return
    differences = [*_shape(config, step), *(_settings(config) if read(config, _MODE) == "auto" else ())]
    if differences:
        key, there, here = differences[0]
        also = f" (and {len(differences) - 1} further keys differ)" if differences[1:] else ""
        # Settings may change on purpose, the shape may not.
        meant = f", or, to go on with it all the same, {_MODE}=resume_path {_PATH}={step}"
        raise ConfigError(
            f"{step} would be resumed, which was written with {key} {there}, and this run has {here}{also}: give the "
            f"run a name of its own (trainer.experiment_name, or {_FOLDER}), set {_MODE} to disable to begin anew"
            f"{'' if any(_shape(config, step)) else meant}"
        )


def remember(config: DictConfig) -> None:
    """Note the settings of a run that starts now beside its checkpoints.

    Raises:
        ConfigError: the folder cannot be written.
    """
    folder = Path(read(config, _FOLDER)).expanduser()
    if read(config, "trainer.val_only") or read(config, "trainer.save_freq") <= 0 or "://" in str(folder):
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RECORD).write_text(json.dumps(_settings_of(config), indent=1) + "\n")
    except OSError as exc:
        raise ConfigError(f"{_FOLDER} is {folder}, which cannot be written ({exc.strerror}): name another") from exc


def _resumed(config: DictConfig) -> Path | None:
    """Return the folder of the step that verl would resume."""
    mode = read(config, _MODE)
    if mode == "resume_path":
        step = Path(read(config, _PATH) or "")
        if "global_step_" not in str(step) or not step.is_dir():
            raise ConfigError(
                f"{_MODE} is resume_path and {_PATH} is {read(config, _PATH)}: name the folder of a step, as in "
                "checkpoints/NAME/global_step_10"
            )
        return step
    folder = Path(read(config, _FOLDER))
    latest = folder / "latest_checkpointed_iteration.txt"
    if mode == "disable" or not latest.is_file():
        return None
    step = folder / f"global_step_{latest.read_text().strip()}"
    return step if step.is_dir() else None


def _shape(config: DictConfig, step: Path) -> Iterator[tuple[str, object, object]]:
    """Yield what of processes, strategy and model differs between a checkpoint and a run."""
    fsdp_config = _json(step / "actor" / "fsdp_config.json")
    processes, mine = fsdp_config.get("world_size"), devices(config, "trainer")
    if processes not in (None, mine):
        yield "trainer.nnodes x trainer.n_gpus_per_node", processes, mine
    strategy = _VERSIONS.get(fsdp_config.get("FSDP_version", 0))
    if strategy not in (None, read(config, _STRATEGY)):
        yield _STRATEGY, strategy, read(config, _STRATEGY)
    written, configured = _json(step / "actor" / "huggingface" / "config.json"), _json(model_file(read(config, _MODEL)))
    for size in _SIZES:
        if size in written and size in configured and written[size] != configured[size]:
            yield f"a model whose {size} is", written[size], f"{configured[size]} ({_MODEL} is {read(config, _MODEL)})"
            return


def _settings(config: DictConfig) -> Iterator[tuple[str, object, object]]:
    """Yield the settings in which a run differs from the one whose checkpoints would be resumed."""
    noted, here = _json(Path(read(config, _FOLDER)) / RECORD), _settings_of(config)
    for key in noted:
        if key in here and noted[key] != here[key]:
            yield key, f"= {noted[key]}", here[key]


def _settings_of(config: DictConfig) -> dict[str, Any]:
    flat = {key: value for name in SETTINGS for key, value in _flat(name, find(config, name))}
    return {key: value for key, value in flat.items() if not key.endswith(_FILES)}


def _flat(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(f"{key}.{name}", inner)
    else:
        yield key, value


def model_file(path: str) -> Path:
    """Return where a model's `config.json` is, in a folder or the hub's cache; it may not exist."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    here = Path(path).expanduser() / "config.json"
    if here.is_file():
        return here
    try:
        cached = try_to_load_from_cache(path, "config.json")
    except HFValidationError:
        return here
    return Path(cached) if isinstance(cached, str) else here


def _json(path: Path) -> dict[str, Any]:
    """Return the mapping in a file; empty if there is none, or none that can be read."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
