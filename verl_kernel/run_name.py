# SPDX-License-Identifier: Apache-2.0
"""The name of a run, and of its folder of checkpoints; recipes ask for it as `${verl_kernel.run_name:...}`.

Runs of two sizes, methods or models must not share a folder: verl resumes whatever the folder holds.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from omegaconf import OmegaConf

_OF_EVERY_MODEL = ("model", "huggingface", "actor")
"""Names of folders that say nothing of the model inside."""


def run_name(recipe: str, method: str, model: str, size: str) -> str:
    """Return a name that is a name of a file too.

    Args:
        recipe: name of the recipe.
        method: name of the method.
        model: path or name on the hub; its last part that says something is taken.
        size: choice of `gpus`.
    """
    parts = [part for part in PurePosixPath(model).parts if part not in (*_OF_EVERY_MODEL, "/", "~", "..")]
    return "-".join((recipe, method, parts[-1] if parts else "model", size))


# A process may import this module before and after verl reloads its plugins.
OmegaConf.register_new_resolver("verl_kernel.run_name", run_name, replace=True)
