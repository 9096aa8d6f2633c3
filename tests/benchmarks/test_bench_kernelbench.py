# SPDX-License-Identifier: Apache-2.0
"""bench_kernelbench on a small task, and three of our answers on published tasks where these are at hand."""

import inspect

import pytest

from benchmarks.bench_kernelbench import OPTIONS, OURS
from benchmarks.kernelbench.programs import read_programs, reference_of
from tests.benchmarks.scripts import PUBLISHED, bench, needs_published, program
from tests.env.programs import program_of
from verl_kernel.commands import eval as eval_command
from verl_kernel.env import EvalResult, EvalStatus, check
from verl_kernel.errors import DataError

HEAD = "# SPDX-License-Identifier: Apache-2.0\n# A sum.\n# expected: {expected}\n# speedup: {speedup}\n"
ANSWER = HEAD + program_of("""
@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) + {added} * tl.load(y + i, mask=i < n), mask=i < n)
def forward(self, x, y):
    out = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), B=1024)
    return out
""")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "7_add.py").write_text(program("x + y", "64, 1024", "64, 1024"))
    (tmp_path / "runs").mkdir()
    write(tmp_path, 0, "ok", 1)
    write(tmp_path, 1, "incorrect", 2)
    return tmp_path


def write(folder, sample, expected, added, speedup="0.1 to 10"):
    text = ANSWER.format(expected=expected, speedup=speedup, added=added)
    (folder / "runs" / f"level_1_problem_7_sample_{sample}_kernel.py").write_text(text)


@pytest.mark.processes
def test_verdicts_as_expected_end_with_0_and_make_a_table(folder):
    done = bench("bench_kernelbench", folder, "--runs", folder / "runs", "--markdown", folder / "table.md")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 programs for 1 tasks, 0 not as expected" in done.stdout
    lines = (folder / "table.md").read_text().splitlines()
    assert lines[0].startswith("| task | sample | verdict | expected | speedup |")
    assert lines[2].startswith("| 1/7_add | 0 | ok | ok | ")
    assert "| 1/7_add | 1 | incorrect | incorrect |" in lines[3]


@pytest.mark.exhaustive
@pytest.mark.processes
def test_a_verdict_that_is_not_expected_ends_with_1(folder):
    write(folder, 0, "ok", 1, speedup="20 to 30")
    write(folder, 1, "ok", 2)
    done = bench("bench_kernelbench", folder, "--runs", folder / "runs")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "20 to 30 was expected" in done.stderr
    assert "ok was expected" in done.stderr
    assert "2 not as expected" in done.stdout


def test_what_differs_from_what_is_expected(folder):
    right, wrong = read_programs(folder / "runs")
    verdict = EvalResult(task_id="7_add", status=EvalStatus.OK, correctness=True, decoy_kernel=False, speedup=2.0)
    assert right.deviation(verdict) == ""
    assert right.deviation(verdict.model_copy(update={"speedup": 20.0})) == "0.1 to 10 was expected"
    assert right.deviation(verdict.model_copy(update={"speedup": None})) == "0.1 to 10 was expected"
    assert right.deviation(verdict.model_copy(update={"task_flags": ("constant_output",)})) == "a reward was expected"
    assert wrong.deviation(verdict) == "incorrect was expected"
    write(folder, 0, "ok", 1, speedup="none")
    untimed, _ = read_programs(folder / "runs")
    assert untimed.deviation(verdict) == "no speedup was expected"
    assert untimed.deviation(verdict.model_copy(update={"speedup": None})) == ""


@pytest.mark.parametrize(("line", "names"), [("# expected: fine", "expected"), ("# speedup: fast", "speedup")])
def test_a_file_that_does_not_say_what_it_expects_is_refused(folder, line, names):
    path = folder / "runs" / "level_1_problem_7_sample_0_kernel.py"
    head = [line if text.startswith(f"# {names}:") else text for text in path.read_text().splitlines()]
    path.write_text("\n".join(head))
    with pytest.raises(DataError, match=names):
        read_programs(folder / "runs")


def test_tasks_are_chosen_by_level_and_problem(folder):
    assert [one.sample for one in read_programs(folder / "runs", {(1, 7)})] == [0, 1]
    with pytest.raises(DataError, match="no answers"):
        read_programs(folder / "runs", {(2, 7)})
    right, _ = read_programs(folder / "runs")
    assert reference_of(folder, right).name == "7_add.py"
    with pytest.raises(DataError, match="0 files"):
        reference_of(folder / "runs", right)


def test_options_are_those_of_eval():
    defaults = {name: value.default for name, value in inspect.signature(eval_command.command).parameters.items()}
    for name in ("compile_for", "memory_checks", "true_size", "static_check", "tolerance", "float32", "gpu_profile"):
        assert getattr(OPTIONS, name) == defaults[name]
    assert OPTIONS.correctness_trials == defaults["trials"]


def test_our_answers_cover_every_kind():
    programs = read_programs(OURS)
    assert len({(one.level, one.problem) for one in programs}) >= 22
    kinds = {"ok", "incorrect", "decoy", "unsafe", "crash", "compile_error", "rejected_static", "size_dependent"}
    assert {status.value for one in programs for status in one.expected} == kinds
    for one in programs:
        assert bool(check(one.source)) is (one.expected == (EvalStatus.REJECTED_STATIC,)), one.path.name


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.processes
@needs_published
def test_answers_to_published_tasks_are_judged_as_they_say():
    done = bench("bench_kernelbench", PUBLISHED, "--only", "1/19", "1/24", "2/1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 programs for 3 tasks, 0 not as expected" in done.stdout
