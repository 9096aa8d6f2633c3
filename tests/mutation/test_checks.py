# SPDX-License-Identifier: Apache-2.0
"""Each check of the tables, switched off, changes what comes of something that it objects to."""

import pytest

from tests.mutation import judge_table, task_table, watch_table
from tests.mutation.off import switched_off
from tests.mutation.shown import judges as all_judges
from tests.mutation.shown import outcome
from tests.mutation.sites import sites

SITES = {site.name: site for site in sites() if not site.file.startswith("static_check")}
TABLE = {**judge_table.TABLE, **watch_table.TABLE, **task_table.TABLE}


@pytest.fixture(scope="module")
def judges():
    with all_judges() as made:
        yield made


def test_every_check_has_a_line():
    assert sorted(TABLE) == sorted(SITES)


@pytest.mark.processes
@pytest.mark.parametrize("name", TABLE)
def test_without_it_the_outcome_is_another(name, judges):
    wanted, shown = TABLE[name]
    with_it = outcome(shown, judges)
    assert wanted in with_it
    with switched_off(SITES[name]):
        without = outcome(shown, judges)
    assert without != with_it and wanted not in without, without
