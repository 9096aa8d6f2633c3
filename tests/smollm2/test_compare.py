# SPDX-License-Identifier: Apache-2.0
"""The order of recipes/cpu_smollm2/compare.sh, with a program in place of the trainers that says what it was asked."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "recipes" / "cpu_smollm2" / "compare.sh"
STAND_IN = """\
#!/bin/bash
echo "$(basename "$0") $*" >> "$LOG"
[[ "$*" != *$KILLED* || -z $KILLED ]] || exit 1
case "$*" in
*sft_trainer*)
    mkdir -p "$SMOLLM2_DIR/sft/global_step_2/huggingface"
    echo 2 > "$SMOLLM2_DIR/sft/latest_checkpointed_iteration.txt" ;;
*main_ppo*)
    run=$(sed -E 's/.*hydra.run.dir=([^ ]+).*/\\1/' <<< "$*")
    mkdir -p "$run/validation" "$run/checkpoints/global_step_"{5,60}
    touch "$run/validation/"{0,30,60}.jsonl ;;
report*) touch "$2/report.html" ;;
*cpu_smollm2.table*) mkdir -p "$3"; echo "the table" > "$3/table.md" ;;
esac
"""


@pytest.fixture
def folder(tmp_path):
    for name in ("python", "verl-kernel"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(STAND_IN)
        path.chmod(0o755)
    (tmp_path / "model" / "base").mkdir(parents=True)
    (tmp_path / "model" / "manifest.json").touch()
    (tmp_path / "model" / "base" / "config.json").touch()
    (tmp_path / "runs" / "table").mkdir(parents=True)
    return tmp_path


def compare(folder: Path, killed: str = "") -> tuple[int, list[str]]:
    log = folder / "log"
    log.unlink(missing_ok=True)
    environment = {
        **os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "LOG": str(log), "KILLED": killed,
        "SMOLLM2_DIR": str(folder / "model"), "RUNS_DIR": str(folder / "runs"), "KERNELBENCH": "there",
    }  # fmt: skip
    done = subprocess.run([SCRIPT, "trainer.total_training_steps=60"], env=environment, capture_output=True, text=True)
    return done.returncode, log.read_text().splitlines()


def test_both_arms_start_from_the_cold_start_and_are_compared(folder):
    code, said = compare(folder)
    assert code == 0
    arms = ["runs/trloo", "report", "runs/rsft", "report", "runs/before", "report"]
    kinds = ["--kernelbench there", "sft_trainer", *arms, "cpu_smollm2.table"]
    assert [kind for kind, line in zip(kinds, said, strict=True) if kind not in line] == []
    assert "method=rsft" in said[4]
    assert "trainer.val_only=true" in said[6]
    assert said[-1].endswith(
        f"trloo={folder}/runs/trloo/validation/60.jsonl rsft={folder}/runs/rsft/validation/60.jsonl "
        f"before={folder}/runs/before/validation/60.jsonl"
    )


def test_each_arm_is_asked_for_kernelbench_by_its_weights(folder):
    (folder / "model" / "kernelbench.parquet").touch()
    code, said = compare(folder)
    assert code == 0
    asked = [line for line in said if "kernelbench.parquet" in line]
    assert all(f"runs/{arm}-kernelbench" in line for arm, line in zip(("before", "trloo", "rsft"), asked, strict=True))
    assert "resume_from_path" not in asked[0]
    assert asked[1].endswith(f"trainer.resume_from_path={folder}/runs/trloo/checkpoints/global_step_60")
    assert f"rsft={folder}/runs/rsft-kernelbench/validation/60.jsonl" in said[-1]


def test_it_goes_on_where_it_was_stopped(folder):
    (folder / "runs" / "rsft" / "checkpoints").mkdir(parents=True)
    assert compare(folder, killed="runs/rsft")[0] == 1
    code, said = compare(folder)
    assert code == 0
    assert not any("sft_trainer" in line or "runs/trloo --" in line for line in said)
    again = next(line for line in said if "main_ppo" in line)
    assert "--resume" in again
    assert "trainer.resume_mode=auto" in again


def test_what_has_ended_is_not_run_again(folder):
    compare(folder)
    code, said = compare(folder)
    assert code == 0
    assert len(said) == 2
