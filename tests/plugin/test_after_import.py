# SPDX-License-Identifier: Apache-2.0
import importlib
import sys
from pathlib import Path

import pytest

from verl_kernel.plugin.after_import import after_import


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a package with the modules `late` and `broken`."""
    folder = tmp_path / "awaited"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "late.py").write_text("VALUE = 7\n")
    (folder / "broken.py").write_text("raise ValueError('broken')\n")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    yield "awaited"
    sys.meta_path[:] = finders
    for name in [name for name in sys.modules if name.startswith("awaited")]:
        del sys.modules[name]


def test_the_action_comes_once_and_sees_the_finished_module(package: str):
    seen = []
    after_import(f"{package}.late", lambda: seen.append(sys.modules[f"{package}.late"].VALUE))
    assert not seen
    assert package not in sys.modules
    module = importlib.import_module(f"{package}.late")
    assert seen == [7]
    assert module.__spec__.origin.endswith("late.py")
    importlib.reload(module)
    assert seen == [7]


def test_a_module_that_is_there_needs_no_waiting(package: str):
    importlib.import_module(f"{package}.late")
    seen: list[int] = []
    after_import(f"{package}.late", lambda: seen.append(1))
    assert seen == [1]


def test_two_actions_may_wait_for_one_module(package: str):
    seen: list[int] = []
    for number in (1, 2):
        after_import(f"{package}.late", lambda number=number: seen.append(number))
    importlib.import_module(f"{package}.late")
    assert sorted(seen) == [1, 2]


def test_other_imports_and_failures_stay_as_they_are(package: str):
    after_import(f"{package}.late", lambda: pytest.fail("imported"))
    after_import(f"{package}.broken", lambda: pytest.fail("finished"))
    importlib.import_module(package)
    with pytest.raises(ValueError, match="broken"):
        importlib.import_module(f"{package}.broken")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{package}.none")
