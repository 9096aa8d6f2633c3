# SPDX-License-Identifier: Apache-2.0
import json
import socket
from collections import Counter
from contextlib import nullcontext

import pytest
from typer.testing import CliRunner

from verl_kernel import plugin
from verl_kernel.cli import app
from verl_kernel.commands import doctor
from verl_kernel.errors import EnvironmentNotReady
from verl_kernel.plugin import registration

pytestmark = pytest.mark.slow

RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def platform(monkeypatch):
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def findings(*probes: str, exit_code: int) -> dict[str, dict[str, str]]:
    """What all probes find, or these alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "PROBES", {name: doctor.PROBES[name] for name in probes or doctor.PROBES})
        return found_by_all(exit_code)


def found_by_all(exit_code: int) -> dict[str, dict[str, str]]:
    result = RUNNER.invoke(app, ["doctor", "--json"])
    assert result.exit_code == exit_code, result.output
    lines = [json.loads(line) for line in result.output.splitlines() if line.startswith("{")]
    return {line["topic"]: line for line in lines}


def test_a_sound_machine_has_no_remedies():
    found = findings(exit_code=0)
    assert {"python", "verl", "torch", "triton", "vLLM", "ray", "transformers", "TransferQueue"} <= set(found)
    assert set(doctor.PROBES) <= set(found)
    assert all(line["value"] and not line["remedy"] for line in found.values())
    assert found["names"]["value"].count("are ours") == 1
    assert "rlimits" in found["isolation"]["value"]


def test_the_table_shows_every_finding():
    result = RUNNER.invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert all(topic in result.output for topic in doctor.PROBES)


def test_what_is_missing_comes_with_a_remedy_and_exit_1(monkeypatch, tmp_path):
    monkeypatch.delenv("VERL_PLATFORM")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setitem(registration._registry("agent loop"), "kernel_agent", {"_target_": "other.Loop"})
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    found = findings(exit_code=1)
    assert "VERL_PLATFORM=cpu" in found["mode"]["remedy"]
    assert "install gcc" in found["compiler"]["remedy"]
    assert "other.Loop" in found["registries"]["remedy"]
    assert not found["verl"]["remedy"]


@pytest.mark.parametrize(("driver", "cuda", "words"), [
    ("550.54.15", "13.0", "driver is 550.54.15.*CUDA 13.0, which needs 580 or later.*no lock for CUDA 12"),
    ("470.82.01", "12.9", "which needs 525 or later"), ("580.95.05", None, "build without CUDA: install requirements"),
    ("580.95.05", "13.0", None), ("550.54.15", "12.9", None), ("", None, None),
])  # fmt: skip
def test_the_driver_must_run_torchs_cuda(driver, cuda, words):
    with pytest.raises(EnvironmentNotReady, match=words) if words else nullcontext():
        doctor.machine.check_driver(driver, cuda)


def test_what_pip_and_triton_need_is_looked_at(tmp_path):
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (builder@host)"
    assert doctor.machine.driver_in(line) == "550.54.15"
    with pytest.raises(EnvironmentNotReady, match="no Python.h.*python3.*-dev"):
        doctor.machine.python_headers(tmp_path)
    for found, words in (("2.27", "need 2.28"), ("2.28", "llguidance.*2.31.*Rust")):
        with pytest.raises(EnvironmentNotReady, match=words):
            doctor.machine.glibc(found, has_llguidance=False)
    assert doctor.machine.glibc("2.28", has_llguidance=True) == "2.28"


def test_names_are_counted_by_kind_in_a_line():
    expected = plugin.expected()
    kinds = Counter(kind for kind, _ in expected)
    counted = ", ".join(f"{kind} {number}" for kind, number in kinds.items())
    value = findings("names", exit_code=0)["names"]["value"]
    assert value == f"{len(expected)} of {len(expected)} are ours ({counted})"
    assert len(value) < 120
    assert set(kinds) == {"advantage estimator", "policy loss", "reward manager", "agent loop"}


def test_a_lost_name_unused_by_the_recipe_passes(monkeypatch):
    expected = plugin.expected()
    monkeypatch.setitem(registration._registry("advantage estimator"), "topr_signed", findings)
    found = findings("names", "registries", exit_code=0)
    assert found["names"]["value"].startswith(f"{len(expected) - 1} of {len(expected)} are ours")
    assert f"; advantage estimator topr_signed (held by {__name__}.findings)" in found["names"]["value"]
    assert not found["registries"]["remedy"]
    monkeypatch.delitem(registration._registry("advantage estimator"), "topr_signed")
    found = findings("names", "registries", exit_code=1)
    assert "topr_signed (missing)" in found["names"]["value"]
    assert "topr_signed" in found["registries"]["remedy"]


def test_a_plugin_left_out_by_policy_is_noticed(monkeypatch):
    monkeypatch.setenv("VERL_USE_EXTERNAL_PLUGINS", "none")
    assert "VERL_USE_EXTERNAL_PLUGINS" in findings("entry point", exit_code=1)["entry point"]["remedy"]


def test_a_cluster_is_asked_for_an_answer(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert "answers" in findings("Ray", exit_code=0)["Ray"]["value"]
    assert "unset it" in findings("Ray", exit_code=1)["Ray"]["remedy"]


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ZeroDivisionError("by zero"), "ZeroDivisionError"),
        # A damaged package is told apart from a bug.
        (ImportError("libcudnn.so.9: cannot open"), "(libcudnn.so.9: cannot open): `make env`"),
    ],
)
def test_a_probe_that_breaks_is_a_finding(monkeypatch, error, remedy):
    def probe() -> str:
        raise error

    monkeypatch.setitem(doctor.PROBES, "Ray", probe)
    assert remedy in findings("Ray", exit_code=1)["Ray"]["remedy"]


def test_a_head_node_needs_no_gpu(monkeypatch):
    monkeypatch.delenv("VERL_PLATFORM")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert doctor._mode() == "head node: no GPU here; a run joins the Ray cluster at auto"


@pytest.mark.parametrize("package", [None, "flash-attn"])
def test_the_attention_that_recipes_ask_for_is_named(monkeypatch, package):
    monkeypatch.delenv("VERL_PLATFORM")
    monkeypatch.setattr(doctor.machine, "version", lambda *names: f"{package} 2.8.3" if package else None)
    found = doctor._attention()
    assert "sdpa" in found
    assert ("flash_attention_2 from flash-attn 2.8.3" if package else "pip install") in found
