# SPDX-License-Identifier: Apache-2.0
import pytest

from verl_kernel.files import read_objects, replacing

both = pytest.mark.parametrize("is_shared", [False, True])


@both
def test_the_file_changes_when_the_block_ends(tmp_path, is_shared):
    path = tmp_path / "a.json"
    path.write_text("old")
    with replacing(path, is_shared=is_shared) as part:
        part.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@both
def test_a_block_that_fails_leaves_the_older_file_alone(tmp_path, is_shared):
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(KeyError), replacing(path, is_shared=is_shared) as part:
        part.write_text("half")
        raise KeyError
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]


def test_two_writers_of_a_shared_file_do_not_mix(tmp_path):
    path = tmp_path / "a.json"
    with replacing(path, is_shared=True) as one, replacing(path, is_shared=True) as two:
        assert one != two


def test_lines_that_hold_no_object_are_left_out(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"a": 1}\n[2]\n\n{"b": "\xff"}\n{"c":')
    assert list(read_objects(path)) == [{"a": 1}, {"b": "\N{REPLACEMENT CHARACTER}"}]
