# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel aces` and `eval --choose`, on kernels that are right, wrong, and wrong on large inputs only."""

import json

import pytest

from tests.commands.lines import in_a_process, invoked
from tests.commands.test_eval import KERNEL, REFERENCE
from verl_kernel.commands.kernel_choice import choose_kernel
from verl_kernel.data.rows import make_row, read_tasks, write_rows
from verl_kernel.env import KINDS, EvalResult, EvalStatus, GymOptions, Task, TrialChoice
from verl_kernel.env.request import EvalRequest

GOOD = KERNEL.replace("FACTOR", "2.0")
CUT = KERNEL.replace("tl.maximum(total, 0.0) * FACTOR", "tl.minimum(tl.maximum(total, 0.0), 40.0) * 2.0")
PROMPT = [{"role": "user", "content": "Write ModelNew."}]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("aces")
    rows = [make_row(PROMPT, REFERENCE, data_source="t", task_id="relu", split="train", index=0)]
    rows.append(make_row(PROMPT, f"{REFERENCE}\n", data_source="t", task_id="bare", split="train", index=1))
    write_rows(rows, root / "tasks.parquet")
    (root / "pool" / "relu").mkdir(parents=True)
    texts = {"good": GOOD, "cut": CUT, "wrong": KERNEL.replace("FACTOR", "3.0"), "empty": ""}
    for name, text in texts.items():
        (root / "pool" / "relu" / f"{name}.py").write_text(text)
        (root / f"{name}.py").write_text(text)
    (root / "reference.py").write_text(REFERENCE)
    return root


def aces(root):
    options = ("--candidates", root / "pool", "--inputs", 2, "--seed", 1, "--trials", 6, "--device", "cpu")
    return invoked("aces", root / "tasks.parquet", "--out", root / "choice.json", *options).output


@pytest.mark.processes
def test_telling_kinds_get_the_trials(root):
    said = aces(root)
    assert "bare: left out, it has 0 candidates" in said
    assert "relu: " in said
    text = (root / "choice.json").read_text()
    (entry,) = json.loads(text)["tasks"].values()
    assert sum(entry["kinds"].values()) == 6
    assert min(entry["kinds"].values()) >= 1
    assert entry["report"]["candidates"] == 4
    assert len(entry["report"]["columns"]) == 2 * len(KINDS)
    assert "large" in entry["inputs"]
    assert entry["expected_rejections"]["own"] == pytest.approx(3)
    assert "source" not in text  # no program is in the file
    assert "import" not in text  # and no input
    task, bare = read_tasks(root / "tasks.parquet")
    choice = TrialChoice.read(GymOptions(trial_choice=str(root / "choice.json")).trial_choice)
    assert choice.of(EvalRequest(task, GOOD)) == entry["kinds"]
    assert choice.of(EvalRequest(bare, GOOD)) is None
    aces(root)
    assert (root / "choice.json").read_text() == text


@pytest.mark.exhaustive
@pytest.mark.processes
def test_eval_names_the_kernel_to_keep(root):
    files = ("reference.py", "cut.py", "wrong.py", "good.py", "empty.py")
    options = ("--trials", 1, "--choose", 6, "--seed", 2, "--device", "cpu")
    done = in_a_process("eval", *files, *options, cwd=root)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "keep: good.py (right on 6 of 6 further inputs)"


def test_of_kernels_without_a_reward_none_is_kept():
    failed = EvalResult(task_id="relu", kernel="wrong.py", status=EvalStatus.INCORRECT, correctness=False)
    assert choose_kernel(Task(REFERENCE), [GOOD], [failed], GymOptions(device="cpu"), inputs=6, seed=None) is None
