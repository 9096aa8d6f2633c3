# SPDX-License-Identifier: Apache-2.0
"""Flags of a runner's own watch are believed against its candidate; what no runner notes is a forgery."""

from types import SimpleNamespace

import pytest

from verl_kernel.env import EvalStatus, GymOptions
from verl_kernel.env.judge.findings import Stages
from verl_kernel.env.judge.runner_client import RunnerClient, Verdict
from verl_kernel.env.tamper.hack_flags import HackFlag

DEEP: list[object] = []
for _ in range(950):
    DEEP = [DEEP]


def verdict(notes):
    runner = SimpleNamespace(ask=lambda request, budget_s: {"notes": notes})
    with pytest.raises(Verdict) as caught:
        RunnerClient(runner, "/scratch", GymOptions(), Stages(SimpleNamespace(waited_s=0.0))).ask({}, 1.0)
    assert caught.value.status is EvalStatus.HACKING
    return caught.value


def test_the_gravest_note_names_the_error_and_all_are_told():
    stop = verdict({"patched": "sum is another", "host_access": "numpy() reads"})
    assert (stop.error.type, stop.error.message) == ("HostAccess", "numpy() reads")
    assert [flag.value for flag in stop.flags] == ["host_access", "patched"]


@pytest.mark.parametrize("flag", [flag for flag in HackFlag if not flag.is_remark])
def test_every_flag_of_a_verdict_can_be_noted(flag):
    assert verdict({flag.value: "seen"}).flags == (flag,)


@pytest.mark.parametrize(
    "notes", [{"unheard_of": "x"}, {"only_moves": "x"}, {"patched": "x", "launch_raised": "x"}, ["patched"], "patched"]
)
def test_what_no_runner_notes_is_forged(notes):
    assert verdict(notes).flags == (HackFlag.FORGED_MESSAGE,)


def test_a_note_of_any_depth_is_read():
    assert verdict({"patched": DEEP}).flags in ((HackFlag.PATCHED,), (HackFlag.FORGED_MESSAGE,))
