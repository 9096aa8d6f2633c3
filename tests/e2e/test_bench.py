# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel bench` with vLLM: the quickstart's model on the built-in suite, nothing a stand-in."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.test_bench_command import LIGHT, what_counts
from verl_kernel.bench.models.vllm_server import VllmServer

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def bench(out: Path, *model: str, key: str = "") -> str:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "verl_kernel", "bench", "--suite=cpu", "--tasks=2", "--turns=2", "-n", "2"),
            *("--temperature=0", *LIGHT, *model, f"--out={out}"),
        ],
        env={**os.environ, "OPENAI_API_KEY": key}, capture_output=True, text=True, timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.exhaustive
def test_a_server_of_the_benchs_own_and_one_started_apart_agree(quickstart, tmp_path):
    """Greedy: the same completions, and for the same completions the same verdicts."""
    folder = quickstart / "model"
    assert "2 tasks x 2 samples x 2 turns: 8 answers" in bench(tmp_path / "own", f"--vllm={folder}")
    with VllmServer(folder, tmp_path / "log") as server:
        bench(tmp_path / "apart", f"--base-url={server.base_url}", f"--model={server.model}", key=server.key)
    own, apart = what_counts(tmp_path / "own"), what_counts(tmp_path / "apart")
    assert own.keys() == apart.keys()
    assert len(own) == 8
    same = [place for place in own if own[place]["completion"] == apart[place]["completion"]]
    assert len(same) >= 6  # the sums of a batch may round otherwise in another one
    assert [own[place] for place in same] == [apart[place] for place in same]
    assert any(own[place]["code"] for place in same)
