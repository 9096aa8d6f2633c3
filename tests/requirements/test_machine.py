# SPDX-License-Identifier: Apache-2.0
"""Machines that cannot hold the environment are refused with what to do instead."""

import shutil
from collections import namedtuple
from pathlib import Path

import machine
import pytest

Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize(("attribute", "answer", "sentence"), [
    ("system", "Darwin", "this is Darwin.*use it in a Linux container"),
    ("system", "Windows", "this is Windows.*use it in WSL 2"), ("libc_ver", ("", ""), "no glibc.*use Debian 10"),
    ("libc_ver", ("glibc", "2.17"), "glibc 2.17.*need glibc 2.28"),
    ("machine", "aarch64", "this is aarch64.*UNTESTED=1"), ("machine", "ppc64le", "this is ppc64le.*use x86-64"),
])  # fmt: skip
def test_a_machine_is_refused_in_one_sentence(monkeypatch, attribute, answer, sentence):
    monkeypatch.setattr(machine.platform, attribute, lambda: answer)
    with pytest.raises(machine.Refused, match=sentence) as refused:
        machine.check_machine(untested=False)
    assert "\n" not in str(refused.value)


def test_aarch64_can_be_tried(monkeypatch):
    monkeypatch.setattr(machine.platform, "machine", lambda: "aarch64")
    machine.check_machine(untested=True)


@pytest.mark.parametrize("version", [(3, 9, 1), (3, 13, 0)])
def test_a_python_that_does_not_fit_is_told_of_one_that_does(monkeypatch, version):
    monkeypatch.setattr(machine.sys, "version_info", version)
    monkeypatch.setattr(machine.shutil, "which", lambda name: f"/bin/{name}" if name == "python3.11" else None)
    with pytest.raises(machine.Refused, match="verl needs 3.10 to 3.12: run make with PYTHON=python3.11"):
        machine.check_machine(untested=False)
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    with pytest.raises(machine.Refused, match="PYTHON=/path/to/python3.12"):
        machine.check_machine(untested=False)


def test_too_small_a_disk_is_named_with_both_figures(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(9e9, 8e9, 1e9 if Path(path) == tmp_path else 8e9))
    machine.check_disk([Path("/"), tmp_path / "not" / "yet"], 0.9)
    with pytest.raises(machine.Refused, match=r"not/yet has 1.0 GB free .* takes 3.2 GB.*VENV=.*UV_CACHE_DIR"):
        machine.check_disk([Path("/"), tmp_path / "not" / "yet"], 3.2)
