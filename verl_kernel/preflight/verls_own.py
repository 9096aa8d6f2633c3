# SPDX-License-Identifier: Apache-2.0
"""verl's own checks of a configuration, which verl makes with Ray and vLLM already there."""

from __future__ import annotations

import contextlib
import os
import warnings
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from verl_kernel.errors import ConfigError


def check_verls_own(config: DictConfig) -> None:
    """`validate_config` of verl, and its classes of the nodes for actor and rollout, accept the configuration.

    Raises:
        ConfigError: they do not; the message is verl's own.
    """
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    plain = {str(key): value for key, value in config.items() if key != "hydra"}
    resolved = OmegaConf.create(OmegaConf.to_container(OmegaConf.create(plain), resolve=True))
    try:
        # It prints that all is well, and warns of what our estimators do without (a critic).
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            validate_config(resolved, need_reference_policy(resolved), need_critic(resolved))
            omega_conf_to_dataclass(resolved.actor_rollout_ref.rollout)
    except Exception as exc:  # whatever verl raises here would end the run later
        text = " ".join(str(exc).split()) or type(exc).__name__
        raise ConfigError(f"verl refuses this configuration: {text}") from exc
