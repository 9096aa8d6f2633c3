# SPDX-License-Identifier: Apache-2.0
"""Damage is found from each distribution's RECORD, and takes only the metadata of what is damaged."""

from pathlib import Path

import installed
import pytest


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
