# SPDX-License-Identifier: Apache-2.0
"""A candidate's module runs as it was read: same values, same lines, each definition found."""

import inspect
import traceback

import pytest

from verl_kernel.env.static_check import candidate_code

SOURCE = '''
"""About the module."""
from __future__ import annotations
import dataclasses
LIMIT = 3
def outer(values, scale=2):
    """About outer."""
    def inner(value: Missing):
        return value * scale
    return [inner(value) for value in values if value < LIMIT]
def only_docstring():
    """Nothing else."""
class Box:
    """About Box."""
    size = 4
    @staticmethod
    def area(side): return side * side
    @property
    def double(self):
        return (lambda factor: self.size * factor)(2)
@dataclasses.dataclass
class Pair:
    one: int
    two: int = 2
def lazy():
    return (value * value for value in range(4) if value)
def make(step):
    def add(value):
        return value + step
    return add
def fails():
    """Fails."""
    text = "x"
    return 1 / 0
if __name__ == "__main__":
    LIMIT = 100
'''


@pytest.fixture(autouse=True)
def no_definitions(monkeypatch):
    monkeypatch.setattr(candidate_code, "_DEFINITIONS", {})


@pytest.fixture
def path(tmp_path):
    (tmp_path / "kernel.py").write_text(SOURCE)
    return str(tmp_path / "kernel.py")


@pytest.fixture
def module(path, monkeypatch):
    monkeypatch.setitem(candidate_code.sys.modules, "candidate_case", None)
    return candidate_code.load("candidate_case", path)


def test_values_and_docstrings_stay_what_they_are(module):
    assert module.outer([1, 2, 3, 4]) == [2, 4]
    assert module.Box.area(3) == 9
    assert module.Box().double == 8
    assert list(module.lazy()) == [1, 4, 9]
    assert module.Pair(1) == module.Pair(1, 2)
    assert module.make(2)(5) == 7
    assert module.only_docstring() is None
    assert module.only_docstring.__doc__ == "Nothing else."
    documented = (module, module.outer, module.Box, module.fails)
    assert [item.__doc__ for item in documented] == ["About the module.", "About outer.", "About Box.", "Fails."]


def test_the_block_for_running_as_a_script_never_runs(tmp_path, monkeypatch):
    monkeypatch.setitem(candidate_code.sys.modules, "candidate_case", None)
    (tmp_path / "kernel.py").write_text(
        '__name__ = "__main__"\nX = 1\nif __name__ == "__main__":\n    X = 2\nelse:\n    X = 3\n'
    )
    assert candidate_code.load("candidate_case", str(tmp_path / "kernel.py")).X == 1


def test_errors_name_the_lines_of_the_file(module, path):
    with pytest.raises(ZeroDivisionError) as caught:
        module.fails()
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (frame.filename, SOURCE.splitlines()[frame.lineno - 1].strip()) == (path, "return 1 / 0")


def test_definitions_are_those_of_the_tree(module):
    node = candidate_code.definition(module.make(3))
    assert node.name == "add"
    assert node.lineno == inspect.getsourcelines(module.make(3))[1]
    assert candidate_code.definition(module.make(4)) is node
    area = candidate_code.definition(module.Box.area)
    assert area.name == "area"
    assert len(area.body) == 1
    assert not area.decorator_list
    assert len(candidate_code.definition(module.only_docstring).body) == 1
    assert candidate_code.is_loaded()


def test_functions_of_other_files_have_no_definition(module):
    assert candidate_code.definition(traceback.extract_tb) is None
    renamed = module.outer.__code__.replace(co_name="outer")
    assert candidate_code.definition(type(module.outer)(renamed, {})) is None


def test_what_is_no_python_raises_before_anything_runs(tmp_path):
    (tmp_path / "kernel.py").write_text("raise SystemExit\ndef f(:\n")
    with pytest.raises(SyntaxError):
        candidate_code.load("candidate_case", str(tmp_path / "kernel.py"))
    assert not candidate_code.is_loaded()


@pytest.mark.parametrize("statement", ["import pytest", "import pytest as x", "from pytest import mark, raises as x",
                                       "import absent.part, pytest"])  # fmt: skip
def test_a_package_that_is_tried_is_never_there(tmp_path, statement):
    path = tmp_path / "optional.py"
    path.write_text(f"try:\n    {statement}\n    found = 1\nexcept ImportError as error:\n    found = str(error)\n")
    assert "no candidate may use" in candidate_code.load("optional", str(path)).found


def test_a_package_that_is_looked_for_is_never_found(tmp_path):
    path = tmp_path / "optional.py"
    path.write_text(
        "from importlib.util import find_spec\nfound = [find_spec('pytest'), find_spec('torch') is not None]"
    )
    assert candidate_code.load("optional", str(path)).found == [None, True]


def test_a_name_that_an_absent_package_binds_stays_local(tmp_path):
    path = tmp_path / "optional.py"
    path.write_text("x = 1\ndef f():\n    try: import pytest as x\n    except ImportError: pass\n    return x\n")
    with pytest.raises(UnboundLocalError):
        candidate_code.load("optional", str(path)).f()
