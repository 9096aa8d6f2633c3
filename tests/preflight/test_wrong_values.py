# SPDX-License-Identifier: Apache-2.0
"""Whatever a key holds, a start is refused in a sentence or goes on: no check fails by itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import HealthCheck, assume, find, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from tests.config.composed import composed
from tests.preflight.folder import write_folder
from verl_kernel import plugin
from verl_kernel.adaptive import AdaOptions
from verl_kernel.advantage import RecOptions, ToprOptions
from verl_kernel.advantage.options import TrlooOptions
from verl_kernel.env import GymOptions
from verl_kernel.errors import VerlKernelError
from verl_kernel.loss import options as of_losses
from verl_kernel.option_group import option_names
from verl_kernel.preflight import preflight
from verl_kernel.preflight.hardware import described
from verl_kernel.reward.options import RolloutOptions
from verl_kernel.reward.profiling import ProfilingReward
from verl_kernel.sampler.options import PRSOptions
from verl_kernel.verl_keys import KEYS

GROUPS = (
    *(GymOptions, RolloutOptions, ProfilingReward, TrlooOptions, RecOptions, ToprOptions, AdaOptions, PRSOptions),
    *(of_losses.TurnCorrectionOptions, of_losses.RecLossOptions, of_losses.ToprLossOptions),
)
OURS = {f"{group.NODE}.{key}": group._hints()[key] for group in GROUPS for key in option_names(group)}
NODES = sorted({key.rpartition(".")[0] for key in (*OURS, *KEYS)} | {"algorithm", "trainer.v1", "reward", "kernelgym"})
EVERY_KEY = sorted({*OURS, *KEYS, *NODES} - {""})

NAMES_OF_OURS = [name for _, name in plugin.expected()] + ["grpo", "remax", "vanilla", "single_turn_agent", "naive"]

BASES: tuple[tuple[str, ...], ...] = (
    ("cpu_quickstart",), ("cpu_quickstart", "method=topr"), ("cpu_quickstart", "method=rec_ring"),
    ("cpu_quickstart", "method=opmd_k2", "trainer_mode=separate_async"), ("cpu_quickstart", "method=ada_est"),
    ("cpu_quickstart", "method=ada_seq_balance", "trainer_mode=colocate_async"),
    ("cpu_quickstart", "mismatch=turn_mrs"),
    ("cpu_quickstart", "mismatch=mrs_tis", "trainer.v1.sampler.sampler_kwargs.group_filter=refill"),
    ("cpu_quickstart", "kernelgym.context=top_w", "trainer.val_only=true"), ("kernel_trloo",),
)  # fmt: skip
WORDS = (
    *("", " ", "abc", "none", "auto", "5", "1e400", "0.5_2.0", "a,b", "token", "sequence", "geometric", "/nowhere"),
    *(".", "/", "~", "pkg://", "pkg://nothing", "a/b", "a b/c d", "://", "${nothing}", "${trainer.nnodes}", "???", "Ä"),
)
SCALARS = (
    st.sampled_from([None, True, False, -1, 0, 1, 2, 1.5, -0.5, 10**30, float("nan"), float("inf"), -float("inf")])
    | st.sampled_from(WORDS)
    | st.text("ab0_./:-,=$ {}[]", max_size=6)
)
VALUES = (
    SCALARS
    | st.lists(SCALARS, max_size=2)
    | st.dictionaries(st.sampled_from(["a", "path", "name", "_target_"]), SCALARS, max_size=2)
)


def fitting(key: str) -> st.SearchStrategy[Any]:
    """Values of the type that a key asks for: the first checks let them through to those behind."""
    hint = (OURS | KEYS).get(key)
    arms = [arm for arm in (hint, *get_args(hint)) if arm is not type(None)]
    words = next((get_args(arm) for arm in arms if get_origin(arm) is Literal), ())
    kinds = {kind for arm in arms for kind in (arm, *get_args(arm)) if isinstance(kind, type)}
    found = [*words, *([True, False] if bool in kinds else []), *([0, 1, 2, 3, 8, 64] if kinds & {int, float} else [])]
    found += [0.0, 0.1, 0.5, 1.0, 2.5] if float in kinds else []
    return st.sampled_from([*found, *(NAMES_OF_OURS if str in kinds else []), None])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_folder(tmp_path_factory.mktemp("wrong"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VERL_PLATFORM", "cpu")
        patch.chdir(folder)
        yield folder


def files(folder: Path, recipe: str) -> Iterator[str]:
    for split in ("train", "val"):
        yield f"data.{split}_files={folder}/{split}.parquet"
    yield f"quickstart_dir={folder}" if recipe == "cpu_quickstart" else f"actor_rollout_ref.model.path={folder}/model"


def start(folder: Path, base: tuple[str, ...], wrong: dict[str, Any]) -> str | None:
    """The sentence by which a start is refused; any other exception is the failure that is looked for."""
    recipe, *overrides = base
    config = composed(recipe, *files(folder, recipe), *overrides)
    for key, value in wrong.items():
        try:
            OmegaConf.update(config, key, value, merge=False, force_add=True)
        except (OmegaConfBaseException, TypeError, AttributeError, ValueError):
            assume(False)  # no configuration: Hydra refuses it, or a node above holds no keys by now
    try:
        preflight(config, described("8xH100-80GB") if base[0] == "kernel_trloo" else None)
    except VerlKernelError as exc:
        return str(exc)
    return None


def check_sentence(sentence: str | None) -> None:
    assert sentence is None or (sentence.strip() and "\n" not in sentence), sentence


@pytest.mark.slow
@pytest.mark.parametrize("base", BASES, ids=" ".join)
def test_every_base_passes_as_it_is_or_is_refused_in_a_sentence(folder, base):
    check_sentence(start(folder, base, {}))


@pytest.mark.slow
@given(base=st.sampled_from(BASES), key=st.sampled_from(EVERY_KEY), value=VALUES)
@settings(suppress_health_check=[HealthCheck.filter_too_much])
def test_a_wrong_value_ends_in_a_sentence(folder, base, key, value):
    check_sentence(start(folder, base, {key: value}))


@pytest.mark.exhaustive
@pytest.mark.parametrize("key", EVERY_KEY)
@settings(max_examples=1, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much])
@given(base=st.sampled_from(BASES), value=VALUES)
def test_a_wrong_value_of_each_key_ends_in_a_sentence(folder, key, base, value):
    check_sentence(start(folder, base, {key: value}))


@pytest.mark.slow
@given(base=st.sampled_from(BASES), keys=st.lists(st.sampled_from(EVERY_KEY), min_size=2, max_size=4), data=st.data())
def test_values_that_contradict_each_other_end_in_a_sentence(folder, base, keys, data):
    check_sentence(start(folder, base, {key: data.draw(fitting(key), label=key) for key in keys}))


def test_what_fits_a_key_passes_its_type():
    assert find(fitting("trainer.nnodes"), lambda value: value == 8) == 8
    assert find(fitting("kernelgym.device"), lambda value: value == "cuda") == "cuda"
    assert find(fitting("algorithm.adv_estimator"), lambda value: value == "trloo") == "trloo"
    assert find(fitting("kernelgym.ablation"), lambda value: value is False) is False
