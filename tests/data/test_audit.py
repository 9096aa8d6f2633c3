# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel data audit` over files of all kinds, with judges' processes; what is known is not asked again."""

import json
import re
import signal
import subprocess
import sys

import pytest

from tests.commands.lines import assert_one_sentence, in_a_process, invoked
from tests.data import published_files as files
from tests.env.waiting import until
from tests.interrupts import hears_interrupts
from verl_kernel.data.audit import AuditFile, audit_tasks
from verl_kernel.data.rows import make_row, write_rows
from verl_kernel.data.task_list import list_tasks
from verl_kernel.env import Audit, GymOptions
from verl_kernel.errors import ConfigError, DataError
from verl_kernel.generated_tasks.chains import ChainStep, Program

SOUND = Program((ChainStep("relu"), ChainStep("scale", "2.0")), (16, 128, 16)).reference
ZEROS = re.sub(r"return (\w+)\.to", r"return (\1 * 0).to", SOUND)
OPTIONS = GymOptions(device="cpu", true_size="auto", reference_timeout_s=3)


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "tasks"
    root.mkdir()
    for name, text in {
        "a_sound": SOUND,
        "b_zeros": ZEROS,
        "c_crash": SOUND.replace("import torch\n", "import torch, os\nos._exit(3)\n", 1),
        "d_hang": SOUND.replace("import torch\n", "import torch\nwhile True: pass\n", 1),
        "e_syntax": "class Model(",
        "f_fails": re.sub(r"return (\w+)\.to", r"return \1.nothing", SOUND),
        "g_large": SOUND.replace("randn(", "randn(65536, "),
    }.items():
        (root / f"{name}.py").write_text(text)
    (root / "h_binary.py").write_bytes(b"\xff\x00")
    return root


@pytest.mark.exhaustive
@pytest.mark.processes
def test_a_second_run_asks_only_what_is_open(folder, tmp_path):
    out = tmp_path / "audit.jsonl"
    done = invoked("data", "audit", folder, "--out", out, "--json", "--timeout", 3)
    audits = {audit.task_id[0]: audit for audit in map(Audit.model_validate_json, done.stdout.splitlines())}
    assert list(audits) == list("abcdefgh")
    assert {one.defect for one in audits["a"].findings} <= {"too_small_to_time"}
    assert audits["a"].reference_ms > 0
    assert "zeros_pass" in {one.defect for one in audits["b"].findings}
    assert "the judge failed" in audits["c"].unfit
    assert "takes longer than" in audits["d"].unfit
    assert "not valid Python" in audits["e"].unfit
    assert "raised AttributeError" in audits["f"].unfit
    assert "binary" in audits["h"].unfit
    assert audits["g"].sizes
    assert audits["g"].unfit is None
    kept = [json.loads(line)["task_id"][0] for line in out.read_text().splitlines()]
    assert kept == list("abdfg")  # a failure of ours is tried again, and a file that is no task costs nothing
    with out.open("a") as file:
        file.write('{"task_id": "cut')
    again = list(audit_tasks(list_tasks(folder), AuditFile(out).audits, OPTIONS))
    assert [is_new for _, is_new in again] == [False] * 8
    assert [audit for audit, _ in again if audit.task_id[0] in "abdefgh"] == [audits[n] for n in "abdefgh"]
    assert "cut" not in out.read_text()


def test_tasks_are_found_in_files_of_all_kinds(folder, tmp_path):
    assert [item.name[0] for item in list_tasks(folder)] == list("abcdefgh")
    (one,) = list_tasks(folder / "a_sound.py")
    assert one.task.reference == SOUND
    assert one.level is None
    assert [item.level for item in list_tasks(files.write(tmp_path, "kernelbench", 4))] == [1, 1, 2, 2]
    assert [item.level for item in list_tasks(tmp_path / "kernelbench.parquet", [2])] == [2, 2]
    facts = {"data_source": "own", "split": "train", "index": 0, "level": None}
    texts = {"good": SOUND, "bad": "class Model("}
    write_rows([make_row([], texts[name], task_id=name, **facts) for name in texts], tmp_path / "rows.parquet")
    good, bad = list_tasks(tmp_path / "rows.parquet")
    assert good.task is not None
    assert bad.task is None
    assert "not valid Python" in bad.reason
    assert bad.name == "bad"


def test_a_checkout_is_read_by_its_levels(tmp_path):
    for number, program in enumerate(files.programs(4)):
        level = tmp_path / "KernelBench" / f"level{1 + number % 2}"
        level.mkdir(parents=True, exist_ok=True)
        (level / f"{number + 1}_Task.py").write_text(program.reference)
    assert [item.level for item in list_tasks(tmp_path)] == [1, 1, 2, 2]
    assert [item.level for item in list_tasks(tmp_path, [2])] == [2, 2]
    assert len(list_tasks(tmp_path / "KernelBench" / "level1")) == 2


def test_another_file_is_not_taken_for_audits(tmp_path):
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(DataError, match=r"other\.jsonl is no file of audits"):
        AuditFile(tmp_path / "other.jsonl")
    with pytest.raises(ConfigError, match="is a file: name another folder"):
        AuditFile(tmp_path / "other.jsonl" / "x")


@pytest.mark.processes
def test_the_table_names_defects_and_reasons(folder):
    done = in_a_process("data", "audit", folder / "b_zeros.py")
    assert done.returncode == 0, done.stderr
    for part in ("b_zeros", "zeros_pass", "the largest number in an output as drawn is 0", "1 task, 0 without"):
        assert part in done.stdout


@pytest.mark.processes
def test_a_file_none_of_whose_tasks_can_be_judged_is_an_error(folder):
    done = invoked("data", "audit", folder / "e_syntax.py", exit_code=2)
    assert "1 task, 0 without a finding; 1 no task" in done.stdout
    assert_one_sentence(done.stderr, "holds no task that can be judged (e_syntax: ")


@pytest.mark.exhaustive
@pytest.mark.processes
def test_an_interrupted_audit_says_what_it_keeps(folder, tmp_path):
    (folder / "c_crash.py").unlink()
    out = tmp_path / "audit.jsonl"
    words = [sys.executable, "-m", "verl_kernel", "data", "audit", str(folder), "--out", str(out), "--timeout", "600"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hears_interrupts
    ) as process:
        until(lambda: out.exists() and len(out.read_text().splitlines()) == 2)  # the third hangs
        process.send_signal(signal.SIGINT)
        said, error = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "zeros_pass" in said
    assert f"of 7 tasks audited; {out} keeps them, and the same command goes on." in error
    assert "Traceback" not in error
