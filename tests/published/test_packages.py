# SPDX-License-Identifier: Apache-2.0
"""What is taken of a package's text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.published.packages import NotThere, Part

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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "module.py").write_text(TEXT)
    return tmp_path


def test_objects_come_in_the_order_of_the_file(folder: Path) -> None:
    text = Part("module.py", "launch SIZE").text(folder)
    assert text == "SIZE: int = 4\n\ndef launch():\n    return kernel\n"


def test_an_assignment_to_two_names_is_taken_once(folder: Path) -> None:
    assert Part("module.py", "FIRST SECOND").text(folder) == "FIRST = SECOND = 2\n"


def test_only_tritons_decorators_are_taken(folder: Path) -> None:
    lines = Part("module.py", "kernel").text(folder).splitlines()
    assert [line for line in lines if line.startswith("@")] == [
        '@triton.heuristics({"A": lambda args: 1})', '@triton.jit(do_not_specialize=["n"])',
    ]  # fmt: skip


def test_given_decorators_replace_all_but_that_of_the_compiler(folder: Path) -> None:
    text = Part("module.py", "kernel", {"kernel": "@triton.autotune([], [])"}).text(folder)
    assert text.startswith('@triton.autotune([], [])\n@triton.jit(do_not_specialize=["n"])\ndef kernel(n):')


def test_of_several_definitions_the_last_is_taken(folder: Path) -> None:
    assert '"other"' in Part("module.py", "chosen").text(folder)


def test_a_name_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(NotThere, match=r"module.py has no nowhere at module level: another version of the package?"):
        Part("module.py", "kernel nowhere").text(folder)
