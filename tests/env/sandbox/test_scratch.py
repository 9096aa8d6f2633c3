# SPDX-License-Identifier: Apache-2.0
"""Directories that a candidate has filled: measured within bounds, removed whatever they have become."""

import os
import random
from pathlib import Path
from unittest.mock import Mock

import pytest

from verl_kernel.env.sandbox.scratch import ENTRY_BYTES, Scratch, remove, used_bytes
from verl_kernel.errors import InfraError

LIMIT = 1 << 20


def chain(root: Path, depth: int) -> None:
    """Directories within directories, deeper than a path can name."""
    fd = os.open(root, os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("leaf", os.O_CREAT, dir_fd=fd))
    os.close(fd)


def test_it_is_as_new_for_a_second_runner():
    scratch = Scratch("x = 1\n")
    assert used_bytes(scratch.path, LIMIT) == ENTRY_BYTES
    Path(scratch.path, "kernel.py").write_text("x = 2\n")
    Path(scratch.path, "cache").mkdir()
    os.chmod(scratch.path, 0)
    scratch.renew()
    assert os.listdir(scratch.path) == ["kernel.py"]
    assert os.stat(scratch.path).st_mode & 0o777 == 0o700
    assert Path(scratch.path, "kernel.py").read_text() == "x = 1\n"
    scratch.close()
    assert not os.path.exists(scratch.path)
    remove(scratch.path)  # what is not there needs no removal


def test_a_place_that_takes_no_files_is_our_failure(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(InfraError, match="no scratch directory"):
        Scratch("")


def test_what_is_written_counts_and_holes_do_not(tmp_path):
    (tmp_path / "written").write_bytes(os.urandom(5 * ENTRY_BYTES))
    with open(tmp_path / "hole", "wb") as hole:
        hole.truncate(1 << 30)
    assert 6 * ENTRY_BYTES <= used_bytes(str(tmp_path), LIMIT) <= 8 * ENTRY_BYTES


def test_many_files_and_what_nobody_may_look_into_are_too_much(tmp_path, monkeypatch):
    for number in range(LIMIT // ENTRY_BYTES):
        os.link(tmp_path / "0", tmp_path / str(number)) if number else (tmp_path / "0").touch()
    assert used_bytes(str(tmp_path), LIMIT) == LIMIT
    (tmp_path / "one more").symlink_to("/")
    assert used_bytes(str(tmp_path), LIMIT) > LIMIT
    monkeypatch.setattr(os, "scandir", Mock(side_effect=PermissionError))
    assert used_bytes(str(tmp_path), LIMIT) > LIMIT


def test_nesting_is_too_much_and_goes_all_the_same(tmp_path):
    deep = tmp_path / "deep"
    deep.mkdir()
    chain(deep, 3000)
    assert used_bytes(str(deep), 1 << 40) > 1 << 40
    remove(str(deep))
    assert not deep.exists()


def test_a_tree_goes_whatever_it_holds_and_nothing_beside_it(tmp_path):
    """Random trees of directories, files, links to outside and modes that forbid everything."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    os.chmod(outside / "kept", 0o640)
    chance = random.Random(5)
    for number in range(20):
        root = tmp_path / f"tree{number}"
        root.mkdir()
        places = [root]
        for name in range(30):
            place = chance.choice(places) / f".{name}"
            kind = chance.choice(["file", "directory", "directory", "link", "link to a file", "hard link"])
            if kind == "directory":
                place.mkdir()
                places.append(place)
            elif kind == "file":
                place.write_text(kind)
            elif kind == "hard link":
                os.link(outside / "kept", place)
            else:
                place.symlink_to(outside if kind == "link" else outside / "kept")
        for place in chance.sample(places, len(places) // 2):
            os.chmod(place, 0)
        remove(str(root))
        assert not root.exists()
    assert (outside / "kept").read_text() == "kept"
    assert os.stat(outside / "kept").st_mode & 0o777 == 0o640
    assert os.stat(outside).st_mode & 0o777 != 0o700 or os.umask(0o77) == 0o77
