# SPDX-License-Identifier: Apache-2.0
"""What is taken of a package's text, and the candidate that it makes with a host part."""

from dataclasses import replace

import pytest
import torch

from benchmarks.published.packages import NotThere, Part, heuristics, tuned
from benchmarks.published.program import TRITON, Program
from benchmarks.published.programs import PROGRAMS

TEXT = '''
import this_module_is_nowhere

SIZE: int = 4
FIRST = SECOND = 2

if FIRST:
    def chosen(): return "first"
else:
    def chosen(): return "other"


@own()
@triton.heuristics({"A": lambda args: 1})
@triton.jit(do_not_specialize=["n"])
def kernel(n):
    """Says nothing."""
    return n


def launch():
    return kernel
'''
TAKEN = {"launch SIZE": "SIZE: int = 4\n\ndef launch():\n    return kernel\n", "FIRST SECOND": "FIRST = SECOND = 2\n"}
PROGRAM = Program(
    Part("module.py", "twice"), "rows, columns = 2, 3", {"x": "torch.ones(rows, columns)"}, "2 * x * self.weight",
    "twice(x) * self.weight", parameters={"weight": "torch.ones(columns)"}, changes=(("own.", ""),),
    wrong=("return twice(x)", "return x"),
)  # fmt: skip


@pytest.fixture
def package(tmp_path):
    (tmp_path / "module.py").write_text(TEXT)
    return tmp_path


@pytest.mark.parametrize("names", TAKEN)
def test_objects_come_once_in_the_order_of_the_file(package, names):
    assert Part("module.py", names).text(package) == TAKEN[names]


def test_only_tritons_decorators_are_taken(package):
    assert [line for line in Part("module.py", "kernel").text(package).splitlines() if line.startswith("@")] == [
        '@triton.heuristics({"A": lambda args: 1})', '@triton.jit(do_not_specialize=["n"])',
    ]  # fmt: skip


def test_given_decorators_replace_all_but_that_of_the_compiler(package):
    text = Part("module.py", "kernel", "@triton.autotune([], [])").text(package)
    assert text.startswith('@triton.autotune([], [])\n@triton.jit(do_not_specialize=["n"])\ndef kernel(n):')


def test_of_several_definitions_the_last_is_taken(package):
    assert '"other"' in Part("module.py", "chosen").text(package)


def test_a_name_that_is_not_there_is_named(package):
    with pytest.raises(NotThere, match=r"module.py has no nowhere at module level: another version of the package?"):
        Part("module.py", "kernel nowhere").text(package)


def test_decorators_of_ours_are_those_that_triton_reads():
    assert heuristics(A="f", B="lambda args: 1") == "@triton.heuristics({'A': f, 'B': lambda args: 1})"
    assert tuned("M N", "A B num_warps", (1, 2, 4), (3, 4, 8), reset_to_zero=["X"]) == (
        "@triton.autotune(configs=[triton.Config({'A': 1, 'B': 2}, num_warps=4), "
        "triton.Config({'A': 3, 'B': 4}, num_warps=8)], key=['M', 'N'], reset_to_zero=['X'])"
    )


def test_every_task_is_a_program():
    for name, program in PROGRAMS.items():
        compile(program.task(), name, "exec")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "module.py").write_text("import nowhere\n\ndef twice(x):\n    return own.sum([x, x])\n")
    return tmp_path


def ran(text: str, name: str) -> torch.Tensor:
    names: dict = {}
    task: dict = {}
    exec(text.replace(TRITON, ""), names)
    exec(PROGRAM.task(), task)
    return names[name](*task["get_init_inputs"]())(*task["get_inputs"]())


def test_task_and_candidate_agree(folder):
    assert torch.equal(ran(PROGRAM.candidate(folder), "ModelNew"), ran(PROGRAM.task(), "Model"))


def test_a_mistake_is_one_replacement(folder):
    assert torch.equal(ran(PROGRAM.candidate(folder, is_wrong=True), "ModelNew"), torch.ones(2, 3))


def test_what_is_replaced_must_be_there(folder):
    with pytest.raises(ValueError, match="there is no 'tl.' to replace"):
        replace(PROGRAM, changes=(("tl.", ""),)).candidate(folder)
