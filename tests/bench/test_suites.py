# SPDX-License-Identifier: Apache-2.0
"""Suites: the built-in one, and those from files; folders of kernels in place of a model."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.bench.scripted_run import suite_of
from tests.env.programs import reference
from verl_kernel.bench.models.answers import Question
from verl_kernel.bench.models.saved_kernels import SavedKernels, find_kernels
from verl_kernel.bench.suites import load_suite
from verl_kernel.data.rows import make_row, write_rows
from verl_kernel.env import EvalStatus
from verl_kernel.errors import ConfigError, DataError
from verl_kernel.quickstart.build import write_tasks
from verl_kernel.quickstart.drawing import draw
from verl_kernel.quickstart.options import Quickstart

SUITE = suite_of("level_1_problem_3", "relu_2", "a")
REFERENCE = reference("x + {n}", "torch.ones(1)")


def checkout(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return f"kernelbench:{folder}"


@pytest.fixture
def problems(tmp_path):
    names = ("level1/10_Ten.py", "level1/2_Two.py", "level2/1_One.py", "level1/notes.py")
    return checkout(tmp_path / "kb", {name: REFERENCE.format(n=n) for n, name in enumerate(names)})


@pytest.mark.slow
def test_the_built_in_suite_is_the_quickstarts_validation(tmp_path):
    write_tasks(draw(Quickstart(), conversations=0), tmp_path)
    suite = load_suite("cpu")
    assert load_suite(str(tmp_path / "val.parquet")).tasks == suite.tasks
    assert [item.family for item in suite.tasks] == [
        split for split, count in Quickstart().validation.items() for _ in range(count)
    ]
    assert suite.hash == load_suite("cpu").hash
    assert suite.feedback_chars == 440


def test_a_checkout_by_level_and_number(problems):
    suite = load_suite(problems)
    names = [item.task.task_id for item in suite.tasks]
    assert names == ["level_1_problem_2", "level_1_problem_10", "level_2_problem_1"]
    assert [item.level for item in suite.tasks] == [1, 1, 2]
    assert suite.tasks[0].task.reference in suite.tasks[0].messages[0]["content"] + "\n"
    assert [item.level for item in load_suite(problems, (2,)).tasks] == [2]
    assert load_suite(problems).hash != load_suite(problems, (1,)).hash


def test_prompts_of_ours_can_name_targets(problems, tmp_path):
    suite, named = load_suite(problems), load_suite(problems, targets=("gfx942",))
    assert (suite.hash, suite.tasks[0].task) == (named.hash, named.tasks[0].task)
    assert suite.prompt_hash != named.prompt_hash
    assert "must compile for gfx942 (AMD Instinct MI300X)" in named.tasks[0].messages[0]["content"]
    folder = load_suite(str(tmp_path / "kb" / "level1"), targets=("gfx950",))
    assert "must compile for gfx950" in folder.tasks[0].messages[0]["content"]
    with pytest.raises(ConfigError, match="--name-targets changes this package's prompt, and --suite cpu has its own"):
        load_suite("cpu", targets=("gfx942",))


def test_comments_do_not_change_a_suite_and_text_does(problems, tmp_path):
    before, path = load_suite(problems).hash, tmp_path / "kb" / "level1" / "2_Two.py"
    path.write_text("# a comment\n" + path.read_text())
    assert load_suite(problems).hash == before
    path.write_text(path.read_text().replace("x + 1", "x + 5"))
    assert load_suite(problems).hash != before


def test_parquet_with_the_hubs_columns(tmp_path):
    rows = [{"code": REFERENCE.format(n=n), "level": 1, "name": f"{n}_N", "problem_id": n} for n in (2, 1)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "level_1.parquet")
    for path in (tmp_path, tmp_path / "level_1.parquet"):
        suite = load_suite(f"kernelbench:{path}", (1,))
        assert [item.task.task_id for item in suite.tasks] == ["level_1_problem_1", "level_1_problem_2"]


@pytest.mark.parametrize(
    ("files", "suite", "levels", "words"),
    [
        ({}, "kernelbench:nowhere", (), "nowhere does not exist: give a checkout"),
        ({}, "kernelbench:{root}/empty", (), "holds no problems: give a checkout"),
        ({}, "kernelbench:{root}/kb", (3,), "holds no problems of level 3"),
        ({"kb/level1/2_Again.py": REFERENCE}, "kernelbench:{root}/kb", (), "2_.*2_.* both hold level_1_problem_2"),
        ({"kb/level2/3_Bad.py": "def ("}, "kernelbench:{root}/kb", (), "3_Bad.py: .* level_2_problem_3 is not valid"),
        ({"refs/bad.py": "x = 1\n"}, "{root}/refs", (), "bad.py: reference bad defines no `class Model`"),
    ],
)
def test_what_cannot_serve_is_named(tmp_path, problems, files, suite, levels, words):
    (tmp_path / "empty").mkdir()
    checkout(tmp_path, files)
    with pytest.raises(DataError, match=words):
        load_suite(suite.format(root=tmp_path), levels)


def test_a_folder_of_references_is_named_after_its_files(tmp_path):
    checkout(tmp_path / "mine", {f"{name}.py": REFERENCE.format(n=name) for name in "ba"})
    suite = load_suite(str(tmp_path / "mine"))
    assert suite.name == "mine"
    assert [item.task.task_id for item in suite.tasks] == ["a", "b"]


def rows_file(path, names, prompt="Write ModelNew."):
    rows = [
        make_row([{"role": "user", "content": prompt}], REFERENCE.format(n=n), data_source="mine", task_id=name,
                 split="val", index=n, level=2)
        for n, name in enumerate(names)
    ]  # fmt: skip
    write_rows(rows, path)
    return str(path)


def test_rows_keep_their_prompts(tmp_path):
    suite = load_suite(rows_file(tmp_path / "val.parquet", "ab"))
    assert suite.tasks[0].messages == ({"role": "user", "content": "Write ModelNew."},)
    assert (suite.tasks[0].level, suite.tasks[0].family) == (2, None)
    other = load_suite(rows_file(tmp_path / "val2.parquet", "ab", prompt="Make ModelNew."))
    assert other.hash == suite.hash
    assert other.prompt_hash != suite.prompt_hash


def test_two_tasks_of_one_name_are_refused(tmp_path):
    with pytest.raises(DataError, match="extra_info.task_id is a, as in row 0, whose reference is another: give each"):
        load_suite(rows_file(tmp_path / "val.parquet", "aba"))


@pytest.mark.slow
def test_the_built_in_suite_may_be_cut():
    suite = load_suite("cpu")
    assert suite.first(2).tasks == suite.tasks[:2]
    assert suite.first(2).hash != suite.hash
    with pytest.raises(ConfigError, match="--tasks is 0"):
        suite.first(0)


def kernels_in(tmp_path, *names):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"# {name}\n")
    found, strangers = find_kernels(tmp_path, SUITE)
    return {task: sorted(samples) for task, samples in found.items()}, [file.name for file in strangers]


def test_the_two_ways_to_name_a_kernel(tmp_path):
    found, strangers = kernels_in(
        tmp_path, "runs/x/level_1_problem_3_sample_0_kernel.py", "runs/x/level_1_problem_3_sample_7_kernel.py",
        "relu_2.py", "relu_2_1.py", "a_4.py", "level_2_problem_3_sample_0_kernel.py", "b.py",
    )  # fmt: skip
    assert found == {"level_1_problem_3": [0, 7], "relu_2": [0, 1], "a": [4]}
    assert strangers == ["b.py", "level_2_problem_3_sample_0_kernel.py"]


def test_two_kernels_for_one_sample_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"are both sample 0 of a: rename one"):
        kernels_in(tmp_path, "a.py", "a_0.py")


def test_a_folder_without_kernels_for_the_suite_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds no kernel for suite s: name files like level_1_problem_3.py"):
        kernels_in(tmp_path, "b.py")
    with pytest.raises(DataError, match="is no folder"):
        find_kernels(tmp_path / "nowhere", SUITE)


async def test_a_kernel_is_an_answer_and_no_text_is_a_verdict(tmp_path):
    (tmp_path / "a_0.py").write_text("x = 1\n")
    (tmp_path / "a_1.py").write_bytes(b"\xff\xfe\x00")
    model = SavedKernels(find_kernels(tmp_path, SUITE)[0])
    right, wrong = [await model.answer(Question(SUITE.tasks[2], sample, 1, (), 0)) for sample in (0, 1)]
    assert (right.code, right.text, right.verdict) == ("x = 1\n", None, None)
    assert wrong.verdict.status is EvalStatus.LOAD_ERROR
    assert "binary" in wrong.verdict.error.message
    assert wrong.verdict.task_hash
