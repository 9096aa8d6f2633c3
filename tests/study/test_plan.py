# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipes.cpu_study.comparisons import power_table
from recipes.cpu_study.plan import read_study
from tests.config.composed import composed
from tests.tiers import thinned
from verl_kernel.advantage.options import check_algorithm
from verl_kernel.errors import ConfigError
from verl_kernel.loss.preflight import check_mismatch
from verl_kernel.reward.options import parse_options
from verl_kernel.sampler.preflight import check_switches
from verl_kernel.verl_keys import find

ROOT = Path(__file__).parents[2]
STUDY, THIRD = ROOT / "recipes" / "cpu_study" / "study.yaml", ROOT / "data" / "study" / "third" / "study.yaml"
ARMS = [run for plan in (STUDY, THIRD) for run in {run.arm.name: run for run in read_study(plan).runs()}.values()]
SMALL = {
    "recipe": "r", "steps": 2, "minutes": 1, "seeds": [0, 1], "seeded": ["a={seed}"],
    "arms": {"one": {"title": "One"}, "two": {"title": "Two", "overrides": ["b=1"]}},
    "comparisons": {"pair": {"title": "1 against 2", "arms": ["one", "two"], "figure": "correct", "expected": 0.1}},
}  # fmt: skip


def written(folder: Path, **changes: object) -> Path:
    path = folder / "study.yaml"
    OmegaConf.save(OmegaConf.create({**SMALL, **changes}), path)
    return path


def pair(**changes: object) -> dict:
    return {"comparisons": {"pair": {**SMALL["comparisons"]["pair"], **changes}}}


def best(**changes: object) -> dict:
    return {"arms": {**SMALL["arms"], "best": {"title": "Best", **changes}}}


def test_seeds_are_the_outer_loop(tmp_path):
    runs = read_study(written(tmp_path)).runs()
    assert [run.name for run in runs] == ["one-0", "two-0", "one-1", "two-1"]
    assert runs[3].overrides == ("trainer.total_training_steps=2", "a=1", "b=1")
    assert runs[3].command[1:4] == ["-m", "verl.trainer.main_ppo", "--config-name=r"]


def test_weights_of_another_arm_are_only_validated(tmp_path):
    arms = {
        "long": {"title": "Long", "trains": 8},
        "asked": {"title": "Asked otherwise", "weights_of": "long", "overrides": ["kernelgym.feedback=none"]},
    }
    trained, asked = read_study(written(tmp_path, arms=arms, comparisons={}, seeds=[3])).runs()
    assert (trained.steps, trained.trained) == (8, None)
    assert (asked.steps, asked.trained) == (0, trained)
    assert asked.overrides[-2:] == ("trainer.val_only=true", "kernelgym.feedback=none")
    with pytest.raises(ConfigError, match=r"arms\.asked\.weights_of is 'long'; it names one of $"):
        read_study(written(tmp_path, arms=dict(reversed(arms.items())), comparisons={}))


def test_a_fingerprint_knows_every_override(tmp_path):
    before = {run.fingerprint for run in read_study(written(tmp_path)).runs()}
    after = {run.fingerprint for run in read_study(written(tmp_path, steps=3)).runs()}
    assert len(before) == 4
    assert not before & after


@pytest.mark.parametrize(("changes", "key"), [
    ({"seeds": []}, "seeds is empty"),
    ({"arms": {}}, "arms is empty"),
    ({"steps": 0}, "steps is 0"),
    ({"repeat": 3}, "repeat is not a key"),
    ({"arms": {"one": {}}, "comparisons": {}}, r"arms\.one\.title is missing"),
    ({"arms": {"one": {"title": "One", "override": []}}}, r"arms\.one\.override is not a key"),
    ({"comparisons": {"pair": {"title": "x"}}}, r"comparisons\.pair\.arms is missing"),
    (pair(arms=["one", "three"]), r"comparisons\.pair\.arms is \['one', 'three'\]; it names two of one, two"),
    (pair(arms=["one"]), r"comparisons\.pair\.arms is \['one'\]"),
    ({"arms": {"one": {"title": "One", "trains": 0}}, "comparisons": {}}, r"arms\.one\.trains is 0"),
    (pair(deviation=0), r"comparisons\.pair\.deviation is 0"),
    (pair(figure="reward"), r"comparisons\.pair: 'reward' is no figure; known are correct"),
    ({"seeds": 3}, r"seeds is 3; it must be a list of whole numbers"),
    ({"recipe": None}, "recipe is null; it must be the name of a configuration"),
    ({"minutes": "soon"}, "minutes is 'soon'; it must be a finite number above 0"),
    ({"overrides": "a=1"}, "overrides is 'a=1'; it must be a list of Hydra overrides"),
    ({"seeded": ["a={n}"]}, "seeded holds 'a={n}'; only {seed} may stand in braces"),
    ({"arms": ["one"]}, r"arms is \['one'\]; it must hold keys"),
    ({"arms": {"one": "One"}}, r"arms\.one is 'One'; it must hold keys, such as arms\.one\.title"),
    (best(answers="one"), r"arms\.best\.cost_of is ''"),
    (best(answers="best", cost_of="one"), r"arms\.best\.answers is 'best'; it names one of one, two"),
    ({"step": 3}, r"step is not a key of a study; did you mean steps\?"),
    (pair(also="correct"), r"comparisons\.pair\.also is 'correct'; it must be a list of figures"),
    (pair(expected="more"), r"comparisons\.pair\.expected is 'more'; it must be a finite number"),
    (pair(expected=0), r"comparisons\.pair\.expected is 0; it is a size with its sign"),
])  # fmt: skip
def test_a_bad_plan_is_refused_by_file_and_key(tmp_path, changes, key):
    with pytest.raises(ConfigError, match=rf"study\.yaml: {key}"):
        read_study(written(tmp_path, **changes))


@pytest.mark.parametrize("run", thinned(ARMS, len(ARMS)), ids=lambda run: run.arm.name)
def test_every_arm_of_the_plans_composes_and_is_accepted(run):
    config = composed(run.study.recipe, *run.overrides)
    parse_options(find(config, "kernelgym"))
    check_switches(config)
    check_mismatch(config)
    check_algorithm(config.algorithm)


def test_the_power_of_the_third_plan_is_the_committed_one():
    assert power_table(read_study(THIRD)) == THIRD.with_name("power.md").read_text()
