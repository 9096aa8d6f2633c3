# SPDX-License-Identifier: Apache-2.0
import importlib
import logging

from verl_kernel.plugin.trainer_log import TRAINER, WithoutFlush, mend


def test_verls_trainer_may_have_no_colocated_replicas(caplog):
    """The plugin is loaded with verl, so the module is mended by its import."""
    module = importlib.import_module(TRAINER)
    with caplog.at_level(logging.INFO, logger=TRAINER):
        module.logger.info("served by %d replicas", 1, flush=True)
    assert "served by 1 replicas" in caplog.messages


def test_a_second_time_changes_nothing():
    module = importlib.import_module(TRAINER)
    mend()
    assert isinstance(module.logger, WithoutFlush)
    assert not isinstance(module.logger.logger, WithoutFlush)
