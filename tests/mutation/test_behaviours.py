# SPDX-License-Identifier: Apache-2.0
"""What is checked by more than one statement, or in another process: switched off, a program's verdict is another."""

import os

import pytest

from tests.mutation.behaviour_table import REMOTE, TABLE
from tests.mutation.remote import OFF, customized, patched
from tests.mutation.shown import judges as all_judges
from tests.mutation.shown import outcome

pytestmark = [pytest.mark.processes, pytest.mark.exhaustive]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("off")


@pytest.fixture(scope="module")
def judges(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([customized(folder), os.environ.get("PYTHONPATH", "")]))
        with all_judges() as made:
            yield made


@pytest.mark.parametrize("name", TABLE)
def test_without_it_the_verdict_is_another(name, judges):
    changes, wanted, shown = TABLE[name]
    with_it = outcome(shown, judges.anew())
    assert wanted in with_it
    with patched(changes):
        assert outcome(shown, judges.anew()) != with_it


@pytest.mark.parametrize("name", OFF)
def test_without_it_in_another_process_the_verdict_is_another(name, judges, folder):
    wanted, shown = REMOTE[name]
    assert wanted in outcome(shown, judges)
    (folder / "off").write_text(name)
    try:
        assert wanted not in outcome(shown, judges)
    finally:
        (folder / "off").write_text("")
