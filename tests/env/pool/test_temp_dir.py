# SPDX-License-Identifier: Apache-2.0
"""A judge's folder for temporary files: it goes with its owner, however that ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from verl_kernel.env.pool.temp_dir import LockedTempDir, sweep
from verl_kernel.errors import EnvironmentNotReady


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_a_home_goes_when_it_is_closed(temporary):
    home = LockedTempDir()
    (Path(home.path) / "file").write_text("x")
    sweep()
    assert list(temporary.iterdir()) == [Path(home.path)]
    home.close()
    home.close()
    assert list(temporary.iterdir()) == []


def test_what_a_killed_owner_leaves_is_removed_by_the_next_home(temporary):
    program = "import os\nfrom verl_kernel.env.pool.temp_dir import LockedTempDir\n"
    program += "held = LockedTempDir()\nos.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", program], check=False)
    (left,) = temporary.iterdir()
    home = LockedTempDir()
    assert not left.exists()
    assert list(temporary.iterdir()) == [Path(home.path)]
    home.close()


def test_a_place_that_takes_no_files_is_named(monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/dev/null")
    with pytest.raises(EnvironmentNotReady, match="/dev/null takes no temporary files"):
        LockedTempDir()
