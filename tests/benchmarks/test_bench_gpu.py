# SPDX-License-Identifier: Apache-2.0
"""The command for the first GPU on a pretended one: sections that fail or hang, and what pages say of it."""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bench_gpu import MORE, SECTIONS
from benchmarks.gpu.driver import Section, run_sections
from benchmarks.gpu.placement import on_gpu
from tests.benchmarks.scripts import ROOT, bench
from tests.env.waiting import until
from tests.exploits.corpus import load
from tests.requirements.bare_machine import make_machine, pack_wheels

HERE = "tests.benchmarks.sections"


def sections(*names, limit_s=60.0):
    return [Section(name, f"{HERE}.{name}", limit_s) for name in names]


def read(out):
    return json.loads((out / "report.json").read_text())["sections"], (out / "report.md").read_text()


@pytest.mark.processes
def test_findings_are_in_both_reports_whatever_a_section_does(tmp_path):
    """One that fails keeps what it found and says why; one that crashes loses half a line at most."""
    assert not run_sections(sections("fails", "crashes", "works"), tmp_path, pretend=True, seconds=180)
    found, text = read(tmp_path)
    fails, crashes, works = (found[name] for name in ("fails", "crashes", "works"))
    assert [one["state"] for one in (fails, crashes, works)] == ["failed", "failed", "done"]
    assert fails["tables"] == {"numbers": [{"one": 1}]}
    assert "the driver said no" in fails["last_words"]
    assert "the driver said no" in text
    assert crashes["facts"] == {"before": "the end"}
    assert works["facts"] == {"device": "cpu"}
    assert works["tables"] == {"numbers": [{"one": 1.0, "text": "a | b"}]}
    assert [check["held"] for check in works["checks"]] == [True, False]
    assert "| works | that does not | by far |" in text
    assert "1 of 2" in text
    assert r"a \| b" in text
    assert "the rest | needs a GPU" in text
    assert "pretended" in text.splitlines()[0]


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_hanging_section_is_stopped_with_its_children(tmp_path):
    """And what does not fit into the time that it left is left out."""
    assert not run_sections([*sections("hangs", limit_s=300.0), *sections("works")], tmp_path, pretend=True, seconds=40)
    hangs, works = (read(tmp_path)[0][name] for name in ("hangs", "works"))
    assert (hangs["state"], works["state"]) == ("stopped", "left out")
    assert "hangs.py" in hangs["last_words"]  # where it hung
    child = Path(f"/proc/{hangs['facts']['child']}/stat")
    assert not child.exists() or child.read_text().split()[2] == "Z"


@pytest.mark.exhaustive
@pytest.mark.slow
def test_findings_are_reported_when_ended_from_outside(tmp_path):
    command = [sys.executable, "benchmarks/bench_gpu.py", "--out", str(tmp_path), "--pretend", "--sections"]
    with subprocess.Popen([*command, "environment", "corpus"], cwd=ROOT, stdout=subprocess.DEVNULL) as whole:
        log = tmp_path / "output.log"
        until(lambda: log.exists() and "= corpus" in log.read_text())
        whole.terminate()
        assert whole.wait(300) == 1
    found, _ = read(tmp_path)
    assert found["environment"]["state"] == "done"
    assert found["environment"]["tables"]["packages"]
    assert found["corpus"]["state"] == "stopped"
    assert "from outside" in found["corpus"]["last_words"]


@pytest.mark.exhaustive
@pytest.mark.slow
def test_what_the_jail_refuses_is_found_layer_by_layer(tmp_path):
    assert run_sections(sections("demanding"), tmp_path, pretend=True, seconds=90)
    section = read(tmp_path)[0]["demanding"]
    layers = {row["jail"]: row for row in section["tables"]["layers"]}
    assert not layers["all layers"]["works"]
    assert layers["all layers"]["stopped at"] == "context"
    assert "PermissionError" in layers["all layers"]["words"]
    assert not layers["without landlock"]["works"]
    assert layers["without landlock, seccomp"]["works"]
    found = {row["jail"] for row in section["tables"]["what helps"] if row["works"]}
    assert found == {"without seccomp; /proc readable", "without landlock; the system calls socket allowed"}
    assert [check["held"] for check in section["checks"]] == [False, True]


def test_an_earlier_report_is_not_mixed_with(tmp_path):
    (tmp_path / "findings.jsonl").write_text("{}\n")
    done = bench("bench_gpu", "--out", tmp_path, "--sections", "environment")
    assert done.returncode == 2
    assert "name another folder" in done.stderr


def test_the_limits_leave_the_tests_their_time():
    assert sum(section.limit_s for section in SECTIONS[:-1]) <= 540 - 60


@pytest.mark.exhaustive
@pytest.mark.slow
def test_wheels_are_carried_to_a_machine_that_lacks_them(tmp_path):
    environment = make_machine(tmp_path)
    pack_wheels(tmp_path / "wheels")
    python = shutil.which("python", path=environment["PATH"])
    command = [python, "benchmarks/bench_gpu.py", "--pretend", "--sections", "environment", "--out"]

    def packages(out, *options):
        done = subprocess.run([*command, out, *options], cwd=ROOT, env=environment, capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        return {row["package"]: row["version"] for row in read(out)[0]["environment"]["tables"]["packages"]}

    bare, carried = packages(tmp_path / "a"), packages(tmp_path / "b", "--wheels", tmp_path / "wheels")
    lacking = ["pydantic", "nvidia-ml-py"]
    assert bare["torch"]
    assert not any(bare[name] for name in lacking)
    assert all(carried[name] for name in lacking)
    assert {**carried, **dict.fromkeys(lacking)} == bare  # what was there is not replaced


@pytest.mark.exhaustive
@pytest.mark.slow
def test_all_of_it_on_a_pretended_gpu(tmp_path):
    done = bench("bench_gpu", "--out", tmp_path / "out", "--pretend")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    found, text = read(tmp_path / "out")
    assert text.startswith(done.stdout)
    assert "## tests" not in done.stdout
    assert list(found) == [section.name for section in SECTIONS]
    assert {section["state"] for section in found.values()} == {"done"}
    assert len(list((tmp_path / "out").iterdir())) <= 8  # what a lent machine gives back
    layers = found["isolation"]["tables"]["layers"]
    assert layers[0]["jail"] == "all layers"
    assert all(row["works"] for row in layers)
    assert {row["jail"] for row in layers} >= {"without landlock", "without seccomp", "without landlock, seccomp"}
    assert {row["protocol"] for row in found["a/a"]["tables"]["speedups"]} == {"device", "latency", "kernelgym"}
    times = found["times"]
    assert {row["program"] for row in times["tables"]["milliseconds"]} == {"fused", "chain", "softmax", "matmul"}
    assert all(row["device"] > 0 and row["latency"] > 0 for row in times["tables"]["milliseconds"])
    assert "do_bench" in times["unknown"][0]["what"]
    assert times["unknown"][0]["why"] == "needs a GPU"
    rates = found["evaluations per second"]["tables"]["evaluations"]
    tasks = [(task, judges) for judges in (1, 2) for task in ("small", "large")]
    assert [(row["tasks"], row["judges"]) for row in rates] == tasks
    assert all(row["a second"] > 0 and row["correctness, s"] > 0 and row["clock, s"] > 0 for row in rates)
    assert sum(found["corpus"]["facts"]["verdicts"].values()) > 15
    assert set(found["tests"]["facts"]["outcomes"]) == {"skipped"}
    assert all(row["words"] == "Skipped: no CUDA device" for row in found["tests"]["tables"]["tests"])
    assert re.search(r'tests="\d+"', (tmp_path / "out" / "junit.xml").read_text())


def test_factories_get_a_device():
    assert on_gpu("x = torch.zeros(4)  # four") == "x = torch.zeros(4, device='cuda')"
    assert on_gpu("k(torch.full((2,), 1.0), torch.arange(3))") == (
        "k(torch.full((2,), 1.0, device='cuda'), torch.arange(3, device='cuda'))"
    )


def test_nothing_else_changes():
    same = (
        "x = torch.zeros(4, device=y.device)  # there", "x = torch.randn(4)", "x = np.zeros(4)", "torch.empty_like(x)",
        "x = torch.zeros(4, **options)", "def f(:", "x = torch.zeros",
    )  # fmt: skip
    for source in same:
        assert on_gpu(source) == source


@pytest.mark.exhaustive
def test_every_program_of_the_corpus_stays_a_program():
    changed = 0
    for case in load():
        placed = on_gpu(case.source)
        changed += placed != case.source
        if placed != case.source:
            ast.parse(placed)
            assert on_gpu(placed) == placed  # once is enough
    assert changed > 50


def rows(page, title):
    lines = (ROOT / "docs" / page).read_text().partition(f"# {title}\n")[2].partition("\n## ")[0].splitlines()
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("|")][2:]


def test_every_unproven_point_names_what_tells():
    files = sorted((ROOT / "tests" / "gpu").glob("test_*.py"))
    trees = [ast.parse(path.read_text()) for path in files]
    tests = {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}
    known = {section.name for section in (*SECTIONS, *MORE)} | tests | {f"tests/gpu/{file.name}" for file in files}
    points = rows("notes/not_tested_on_gpu.md", "Not tested on a GPU")
    assert len(points) > 10
    for point, _, tells in points:
        named = re.findall(r"section `([^`]+)`|`(test_\w+)`|(tests/gpu/\w+\.py)", tells)
        assert {name for names in named for name in names if name} <= known, point
        for word in re.findall(r"-k (\w+)", tells):
            assert any(word in name for name in known), point
        assert "`" in tells or tells == "the same", point


def test_every_section_is_described():
    described = [row[0].strip("`") for row in rows("gpu.md", "Tests and the first report")]
    assert described == [section.name for section in (*SECTIONS, *MORE)]
