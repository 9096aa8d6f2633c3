# SPDX-License-Identifier: Apache-2.0
"""The small launch of a new executing process, and which code of the library it takes from a folder."""

from types import SimpleNamespace

import pytest

from verl_kernel.env.execution import zygote
from verl_kernel.env.executor.library import all


@pytest.fixture
def asked(monkeypatch):
    """What is asked of the library: functions, and where their code is kept."""
    found = []
    library = SimpleNamespace(need=lambda keys, cache: found.append((keys, cache)))
    monkeypatch.setattr(zygote, "library", lambda: library)
    return found


def test_code_is_kept_in_a_folder_that_no_candidate_and_no_other_user_can_write(asked, tmp_path, monkeypatch):
    zygote._load_library(str(tmp_path))
    assert asked.pop()[1] is not None
    tmp_path.chmod(0o777)
    zygote._load_library(str(tmp_path))
    assert asked.pop() == (all.FIRST, None)
    monkeypatch.setattr(zygote.landlock, "abi", lambda: 0)
    zygote._load_library(str(tmp_path / "code"))
    assert asked == [(all.FIRST, None)]
    assert not (tmp_path / "code").exists()


def test_a_new_process_begins_with_a_small_launch():
    assert zygote.run(zygote.made()).tolist() == [2.0 * number for number in range(32)]
