# SPDX-License-Identifier: Apache-2.0
"""Before `make env` and after: machines that cannot hold it, what pip was told, why it failed, and what is damaged."""

import itertools
import re
import shutil
from collections import namedtuple
from pathlib import Path

import installed
import machine
import pytest
from wheels import explain, pip_config, uv_options

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


def distribution(site: Path, name: str, files: dict[str, str]) -> Path:
    """Lay out a distribution as an installer would."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    lines = [f"{info.name}/RECORD,,"]
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
        lines.append(f'"{path}",sha256=x,{len(text)}')
    (info / "RECORD").write_text("\n".join(lines) + "\n")
    return info


@pytest.fixture
def site(tmp_path):
    distribution(tmp_path, "torch", {"torch/lib/libtorch.so": "machine code", "torch/odd, name.py": "x = 1\n"})
    distribution(tmp_path, "typing_extensions", {"typing_extensions.py": "", "../bin/tool": "#!python"})
    return tmp_path


def test_nothing_is_taken_from_a_whole_site(site):
    before = sorted(site.rglob("*"))
    assert installed.remove_damaged(site) == []
    assert sorted(site.rglob("*")) == before
    assert installed.names(site) == ["torch-1.0.dist-info", "typing_extensions-1.0.dist-info"]


@pytest.mark.parametrize("damage", [
    lambda site: (site / "torch/lib/libtorch.so").unlink(),
    lambda site: (site / "torch/lib/libtorch.so").write_text("machine"),
    lambda site: (site / "torch/odd, name.py").unlink(),
    lambda site: (site / "torch-1.0.dist-info/RECORD").unlink(),
    lambda site: (site / "torch-1.0.dist-info/RECORD").write_text("torch/lib/libtorch.so,sha"),
], ids=["removed", "cut", "a name with a comma", "no record", "cut record"])  # fmt: skip
def test_a_damaged_distribution_counts_as_not_installed(site, damage):
    damage(site)
    assert installed.remove_damaged(site) == ["torch"]
    assert installed.names(site) == ["typing_extensions-1.0.dist-info"]
    assert installed.version(site, "torch") == ""


def test_names_are_those_of_the_index(site):
    (site / "typing_extensions.py").unlink()
    assert installed.remove_damaged(site) == ["typing-extensions"]


def test_a_version_keeps_its_local_part(site):
    distribution(site, "torchdata", {"torchdata.py": ""})
    (site / "torch-1.0.dist-info").rename(site / "torch-2.13.0+cpu.dist-info")
    assert installed.version(site, "torch") == "2.13.0+cpu"


LISTED = """\
:env:.find-links='/wheels/a /wheels/b'
:env:.default-timeout='180'
global.cert='/etc/ssl/proxy.crt'
global.extra-index-url='file:///one/simple file:///two/simple'
global.find-links='/elsewhere'
global.index-url='https://mirror.example/simple'
install.index-url='https://nearer.example/simple'
global.trusted-host='mirror.example'
"""


def test_source_options_are_handed_over_in_pips_order():
    options = uv_options(pip_config(LISTED))
    pairs = list(itertools.pairwise(options))
    assert ("--default-index", "https://nearer.example/simple") in pairs
    assert [value for option, value in pairs if option == "--index"] == ["file:///one/simple", "file:///two/simple"]
    assert [value for option, value in pairs if option == "--find-links"] == ["/wheels/a", "/wheels/b"]
    assert ("--allow-insecure-host", "mirror.example") in pairs
    assert [value for option, value in pairs if option == "--cert"] == ["/etc/ssl/proxy.crt"]
    assert ("--index-strategy", "unsafe-best-match") in pairs
    assert "180" not in options
    assert "--no-index" not in options


def test_lines_of_several_values_and_no_index():
    config = pip_config("global.find-links='\\n/a\\n/b'\n:env:.no-index='true'\n")
    assert config["find-links"] == ["/a", "/b"]
    assert "--no-index" in uv_options(config)
    assert "--no-index" not in uv_options(pip_config("global.no-index='false'\n"))


def test_an_index_by_name_takes_the_place_of_all_others():
    options = uv_options(pip_config(LISTED), "https://torch.example/cpu")
    assert [b for a, b in itertools.pairwise(options) if a == "--default-index"] == ["https://torch.example/cpu"]
    assert "--index" not in options
    assert "--find-links" not in options
    assert "/etc/ssl/proxy.crt" in options


@pytest.mark.parametrize(("output", "sentence"), [
    ("error: Failed to install\n  cause: failed to write: No space left on device (os error 28)\n", "disk is full"),
    ("  cause: dns error\n  cause: failed to lookup address information\n", "index did not answer: check the network"),
    ("ERROR: Could not find a version that satisfies the requirement uv==0\n", "index did not answer"),
    ("  cause: Because there is no version of triton==3.7.1 and you require it\n", "lacks a locked version"),
    (
        "  cause: Because triton was not found in the provided package locations and\n         you require "
        "triton==3.7.1, we can conclude that your requirements are\n         unsatisfiable.\n",
        "lacks a locked version.*triton==3",
    ),
    ("first\nsomething new went wrong\n\n", r"failed \(something new went wrong\): `make env` again"),
    ("", "no word of the cause"),
])  # fmt: skip
def test_a_failure_is_one_sentence_with_cause_and_remedy(output, sentence):
    text = explain(output)
    assert re.search(sentence, text)
    assert "\n" not in text
