# SPDX-License-Identifier: Apache-2.0
"""What commands say to what cannot work: one sentence, an exit status, and no wait for what they do not need yet.

Every path that a command takes is among it.
"""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands.bad_files import bad_files
from tests.commands.bench.test_curves import write_run
from tests.commands.lines import Done, assert_one_sentence, run_lines
from tests.data import published_files as files
from verl_kernel.cli import COMMANDS
from verl_kernel.commands import data, sentences
from verl_kernel.errors import ConfigError

TALKS = "name a parquet file of conversations"
TASKS = "name a parquet file of tasks, a Python file, or a folder"
RUN = "name the folder of a training run (it holds metrics.jsonl) or of `verl-kernel bench` (it holds run.json)"

LINES = {
    "eval none.py k.py": "none.py does not exist: name a Python file",
    "eval empty k.py": "empty is a directory: name a Python file",
    "eval ref.py none.py": "none.py does not exist: name a Python file",
    "eval ref.py k.py ./k.py": "./k.py is named twice: name each kernel once",
    "eval broken.py k.py": "broken.py is not valid Python: '(' was never closed (<unknown>, line 1): mend that file",
    "eval k.py k.py": "k.py defines no `class Model` and no `get_inputs()` and no `get_init_inputs()`",
    "eval ref.py k.py --device gpu": "--device is 'gpu'; it must be one of auto, cpu, cuda",
    "eval ref.py k.py --trials 0": "--trials is 0; it must be a whole number of at least 1",
    "eval ref.py k.py --timeout 0": "--timeout is 0.0; it must be a finite number of at least 0.1",
    "eval ref.py k.py --compile-for sm_70": "--compile-for is 'sm_70'; it must be one of off, sm_80",
    "eval ref.py k.py --num-judges 0": "--num-judges is 0",
    "eval ref.py k.py again.py": "again.py is named twice: name each kernel once",
    "eval binary.py k.py": "binary.py is a binary file",
    "eval latin.py k.py": "latin.py is not UTF-8 text",
    "eval ref.py large.py": "large.py is larger than 4 MB",
    "eval ref.py loop.py": "loop.py cannot be read",
    "eval empty.py k.py": "is empty",
    "eval ref.py k.py --static-check lax": "--static-check is 'lax'; it must be one of strict, coverage, off",
    "eval ref.py k.py --tolerance none": "--tolerance is 'none'; it must be one of scaled, parity",
    "eval ref.py k.py --float32 half": "--float32 is 'half'; it must be one of ieee, tf32",
    "eval ref.py k.py --compile-for sm_90,gfx94": "--compile-for is ['sm_90', 'gfx94']; did you mean gfx942? ",
    "eval ref.py k.py --gpu-profile abacus": "--gpu-profile is 'abacus'; it must be one of h100, h100_sxm",
    "clock validate empty": "empty holds no measured.json: name a folder with reference.py, kernels, and measured.json",
    "clock validate . --gpu-profile h100+0GB/s": "'0GB/s' is no figure of a GPU: GB/s lie between 50 and 20000",
    "profile ref.py k.py --page empty": "--page empty is a folder",
    "profile ref.py k.py --gpu-profile b200": "--gpu-profile is 'b200'",
    "bench --suite cpu": "name one model: --base-url URL --model NAME, --vllm FOLDER, or --kernels FOLDER",
    "bench --suite cpu --vllm empty --kernels empty": "name one model: --base-url URL --model NAME, --vllm FOLDER, or",
    "bench --suite cpu --vllm empty": "--vllm is empty, which holds no config.json",
    "bench --suite cpu --base-url http://x/v1": "--base-url and --model go together",
    "bench --suite cpu --base-url http://x/v1 --model m --key-variable UNSET_KEY": "which is not set",
    "bench --suite cpu --kernels empty --levels one": "--levels is 'one'",
    "bench --suite cpu --kernels empty --reward weighted": "--reward is 'weighted'; it must be an option with",
    "bench --suite cpu --kernels empty --reward variants=sum": "reward.variants is not an option; did you mean",
    "bench --suite cpu --kernels empty --reward pay_decoys=true": "kernelgym.decoys is refuse",
    "bench --suite cpu --kernels empty --baseline fast --device cpu": "--baseline is 'fast'",
    "bench --suite cpu --base-url 127.0.0.1:8101 --model m": "'127.0.0.1:8101', without a scheme: begin it with http",
    "bench --suite cpu --vllm none --out o": "--vllm is none, which is no folder",
    "bench --suite cpu --kernels none": "--kernels is none, which is no folder",
    "bench --suite cpu --kernels empty -n 0": "-n is 0; it must be a whole number of at least 1",
    "bench --suite cpu --kernels empty --trials 0": "--trials is 0; it must be a whole number of at least 1",
    "bench --suite cpu --kernels empty --device gpu": "--device is 'gpu'; it must be one of auto, cpu, cuda",
    "bench --suite cpu --kernels empty --context all": "--context is 'all'; it must be one of concat, last",
    "bench --suite cpu --kernels empty --levels 1": "--levels chooses problems of KernelBench",
    "bench --suite cpu --kernels empty --out file": "--out is file, and file is a file: name a folder",
    "bench --suite none --kernels empty": "--suite is 'none'; it must be cpu, kernelbench:PATH, a parquet file or a",
    "bench --suite text.parquet --kernels empty": "text.parquet is no parquet file: name a parquet file of tasks",
    "bench --suite empty --kernels empty": "empty holds no Python files: name a folder of reference programs",
    "bench --suite cpu --self-check --kernels empty": "--self-check asks no model: leave --base-url, --vllm and",
    "bench-curves none": "none does not exist: name the folder of `verl-kernel bench --out`, or a file of trainer.val",
    "bench-curves empty": "empty holds no run.json: name the folder that `verl-kernel bench --out` wrote",
    "bench-curves file": "file, line 1 is no row of a validation with the agent loop kernel_agent (",
    "bench-curves none --out c.txt": "--out is c.txt: name a file that ends in .svg, .png, .pdf",
    "bench-curves none --figure fast": "--figure is 'fast': name one of correct",
    "bench-curves none --out file/c.svg": "--out file/c.svg cannot be written, file is a file: name another folder",
    "bench-board none": "none holds no run.json: name the folder that `verl-kernel bench --out` wrote",
    "bench-board none --out empty": "--out empty is a folder: name a file in it",
    "bench-harbor none": "none holds no run.json: name the folder that `verl-kernel bench --out` wrote",
    "bench-harbor none --out file": "--out file cannot be a folder, file is a file: name another folder",
    "compare none empty": "none holds no run.json: name the folder that `verl-kernel bench --out` wrote",
    "best none": "none holds neither run.json of a bench nor kernels.jsonl of a training run: name a run's folder",
    "data quickstart --out file": "--out file cannot be a folder, file is a file: name another folder",
    "data quickstart --out file/sub": "--out file/sub cannot be a folder, {here}/file is a file",
    "data quickstart --out /proc/x": "--out /proc/x cannot be written (No such file or directory)",
    "data quickstart --out o --conversations 2": "--conversations is 2, less than a batch of the warm start",
    "data quickstart --out o --difficulty bad.yaml": "bad.yaml is no valid YAML (line 3: ",
    "data quickstart --out o --difficulty none.yaml": "none.yaml does not exist: write a table like difficulty.yaml",
    "data quickstart --out o --world big": "has no row 'big'; its rows are easy, hard",
    "recipes.cpu_smollm2 --out o --talks 1": "--talks is 1; it must be at least 2",
    "data rows drkernel none --out o.parquet": "drkernel is no source of rows: did you mean drkernel-rl? choose",
    "data rows kernelbench none --out o.parquet --targets gfx94": "--targets names 'gfx94'; did you mean gfx942? ",
    "bench --suite empty --kernels empty --name-targets --compile-for off": "--name-targets names the GPUs of --",
    "data rows drkernel-rl none --out o.parquet": "none does not exist: on a machine with a network, fetch the file",
    "data rows drkernel-rl cut.parquet --out o.parquet": "cut.parquet is cut off: make or fetch it anew",
    "data rows drkernel-rl text.parquet --out o.parquet": "text.parquet is no parquet file: name a parquet file",
    "data rows drkernel-rl cut.jsonl --out o.parquet": "cut.jsonl is cut off or damaged (line 2 is no JSON)",
    "data rows drkernel-rl latin.jsonl --out o.parquet": "latin.jsonl is cut off or damaged (it is no UTF-8 text)",
    "data rows drkernel-rl tasks.parquet --out empty": "--out empty is a folder: name a file in it",
    "data rows drkernel-rl tasks.parquet --out /proc/y.parquet": "--out /proc/y.parquet cannot be written (",
    "data rows kernelbench cut.parquet --out o.parquet": "cut.parquet is cut off: give a checkout",
    "data rows kernelbench tasks.parquet --levels x --out o.parquet": "--levels is 'x'; it must be numbers, as in",
    "data talks drkernel-coldstart text.parquet --out o.parquet": "text.parquet is no parquet file",
    "data split tasks.parquet --out o --val 2": "--val is 2: give a share between 0 and 1",
    "data split empty --out o": "empty is no parquet file: name a parquet file of tasks",
    "data temperatures tasks.parquet --out o.parquet --at hot": "--at is 'hot'; it must be numbers with commas between",
    "data audit none": f"none does not exist: {TASKS}",
    "data audit empty.parquet": "empty.parquet is empty: make or fetch it anew",
    "data audit ref.py --out file": "file is no file of audits",
    "data audit empty --levels one": "--levels is 'one'",
    "data audit ref.py --true-size small": "--true-size is 'small'; it must be one of auto, off",
    "data coldstart --suite tasks.parquet --run r --out o.parquet --keep all": "--keep is 'all': give best or last",
    "data coldstart --suite tasks.parquet --run r --out o.parquet": "r holds no run.json",
    "aces none.parquet --candidates empty --out o.json": "none.parquet does not exist: give a parquet file",
    "aces text.parquet --candidates empty --out o.json": "text.parquet is no parquet file",
    "aces tasks.parquet --candidates empty --out o.json --method x": "the method of ACES is 'x': it must be c or o",
    "aces tasks.parquet --candidates empty --out o.json --device gpu": "--device is 'gpu'",
    "remix --data none --model model --out o": f"--data none does not exist: {TALKS}",
    "remix --data text.parquet --model model --out o": f"text.parquet is no parquet file: {TALKS}",
    "remix --data tasks.parquet --model model --out o": "tasks.parquet has no column 'messages'; it has data_source",
    "remix --data talks.parquet --model empty --out o": "--model empty holds no config.json: name the folder",
    "remix --data talks.parquet --model model --out o --chosen 9": "--chosen is 9; there are only 8 LoRAs",
    "remix --data talks.parquet --model model --out o --selections 1": "--selections is 1",
    "remix --data talks.parquet --model model --out o --router token": "--router is 'token'; it must be one of layer, ",
    "remix --data talks.parquet --model model --out o --learning-rate 0": "--learning-rate is 0.0",
    "watch w -- nosuchcommand": "nosuchcommand is no command that can be run here: name the trainer's command",
    "watch w -- ./ref.py": "./ref.py is no command that can be run here",
    "watch file -- true": "RUN_DIR file cannot be a folder, file is a file: name another folder",
    "report none": f"none does not exist: {RUN}",
    "report file": f"file is a file: {RUN}",
    "report empty": f"empty holds neither metrics.jsonl nor run.json: {RUN}",
    "report garbage": "garbage/metrics.jsonl holds no step and no validation: name the folder of a run that",
    "report oddbench": "oddbench/run.json has format 99",
    "recipes.cpu_study bad.yaml --out o": "bad.yaml is no valid YAML (line 3: ",
    "recipes.cpu_study none.yaml --out o": "none.yaml does not exist: a study has the keys recipe, steps, seeds",
    "recipes.cpu_study list.yaml --out o": "list.yaml holds no keys: a study has the keys",
    "recipes.cpu_study keys.yaml --out o": "keys.yaml: recipe is missing: give it a value; needed are recipe, steps",
    "recipes.cpu_study plan.yaml --out o --arms two": "--arms names 'two'; the study's arms are one",
    "recipes.cpu_study plan.yaml --out o --rows none.jsonl": "none.jsonl cannot be read as a study's rows",
    "serve-drain": "which judges are meant is unclear: name a node, or one judge with --judge",
    "serve-drain node --judge 3": "which judges are meant is unclear: name a node",
    "serve-drain node --address 127.0.0.1:1": "no Ray cluster answers at 127.0.0.1:1: start a run first",
    "serve-status --address nowhere": "--address is 'nowhere'; it must be HOST:PORT, or auto",
    "serve-status --address 127.0.0.1:1": "no Ray cluster answers at 127.0.0.1:1: start a run first",
    "serve --port 0 --options none": "none does not exist: --options names",
    "eval ref.py k.py --set disk=9": "--set names 'disk'; did you mean disk_mb? keys of kernelgym are device",
    "serve --host 0.0.0.0": "--host is '0.0.0.0', where others could have programs run without a key",
    "serve --port 99999": "--port is 99999; it must be",
    "serve --port 0 --most-waiting 0": "--most-waiting is 0; it must be",
    "serve --port 0 --device tpu": "--device is 'tpu'",
    "eval ref.py k.py --address http://127.0.0.1:9 --other-sizes": "start the service with --set other_sizes=true",
    "mcp --suite none": "--suite is 'none'; it must be cpu",
    "mcp --suite cpu --levels x": "--levels is 'x'; it must be numbers",
}  # fmt: skip
"""Command lines by what they must say after `Error: `, or somewhere in the sentence."""

MISSING, FILE, FOLDER, BELOW, CUT, CUT_BENCH, CUT_LOG, CUT_RUN = (
    "none", "file", "empty", "file/x", "cut.parquet", "cutbench", "cutlog", "cutrun"
)  # fmt: skip
UNANSWERED = "unanswered"
TASKS, READ, WRITTEN = (MISSING, FILE, CUT), (MISSING, FILE), (FILE, BELOW)
"""What is no file of tasks, no folder to read and no folder to write."""

PATHS: dict[str, tuple[str, ...]] = {
    "eval {} k.py": (MISSING, FOLDER, "broken.py"),
    "eval ref.py {}": (MISSING, FOLDER),
    "clock validate {}": (MISSING, FILE, FOLDER, CUT),
    "profile {} k.py": (MISSING, FOLDER, "broken.py"),
    "profile ref.py {}": (MISSING, FOLDER),
    "profile ref.py k.py --page {}": (FOLDER, BELOW),
    "bench --suite {} --kernels empty": TASKS,
    "bench --suite kernelbench:{} --kernels empty": TASKS,
    "bench --suite {} --self-check": TASKS,
    "bench --suite cpu --kernels {}": (*READ, FOLDER),
    "bench --suite cpu --vllm {}": (*READ, FOLDER),
    "bench --suite cpu --kernels empty --out {}": WRITTEN,
    "bench-curves {}": (*READ, FOLDER, UNANSWERED, CUT_BENCH, CUT_RUN, "cut.jsonl", "latin.jsonl"),
    "bench-curves none --out {}.svg": (BELOW,),
    "bench-board {}": (*READ, FOLDER, UNANSWERED, CUT_BENCH),
    "bench-board none --out {}": (FOLDER, BELOW),
    "bench-harbor {}": (*READ, FOLDER, UNANSWERED, CUT_BENCH),
    "bench-harbor none --out {}": WRITTEN,
    "compare {} empty": (*READ, FOLDER, UNANSWERED, CUT_BENCH),
    "best {}": (*READ, FOLDER, UNANSWERED, CUT_BENCH, CUT_LOG),
    "aces {} --candidates empty --out o.json": TASKS,
    "aces tasks.parquet --candidates {} --out o.json": (*READ, FOLDER),
    "aces tasks.parquet --candidates empty --out {}": (FOLDER, BELOW),
    "data quickstart --out {}": WRITTEN,
    "data quickstart --out o --difficulty {}": (MISSING, FOLDER, "bad.yaml"),
    "recipes.cpu_smollm2 --out {}": WRITTEN,
    "data rows drkernel-rl {} --out o.parquet": (*TASKS, FOLDER, "cut.jsonl"),
    "data rows drkernel-rl tasks.parquet --out {}": (FOLDER, BELOW),
    "data talks drkernel-coldstart {} --out o.parquet": (*TASKS, FOLDER, "cut.jsonl"),
    "data split {} --out o": (*TASKS, FOLDER),
    "data split tasks.parquet --out {}": WRITTEN,
    "data temperatures {} --out o.parquet": (*TASKS, FOLDER),
    "data temperatures tasks.parquet --out {}": (FOLDER, BELOW),
    "data audit {}": (*TASKS, FOLDER),
    "data audit ref.py --out {}": (FILE, FOLDER, BELOW),
    "data coldstart --suite {} --run r --out o.parquet": TASKS,
    "data coldstart --suite tasks.parquet --run {} --out o.parquet": (MISSING, FOLDER, CUT_BENCH),
    "data coldstart --suite tasks.parquet --run r --out {}": (FOLDER, BELOW),
    "remix --data {} --model model --out o": TASKS,
    "remix --data talks.parquet --model {} --out o": (*READ, FOLDER),
    "remix --data talks.parquet --model model --out {}": WRITTEN,
    "watch {} -- true": WRITTEN,
    "watch o -- ./{}": (MISSING, FILE),
    "report {}": (*READ, FOLDER, UNANSWERED, CUT_BENCH, CUT_RUN),
    "recipes.cpu_study {} --out o": (MISSING, FILE, FOLDER, "bad.yaml"),
    "recipes.cpu_study plan.yaml --out {}": WRITTEN,
    "recipes.cpu_study plan.yaml --out o --rows {}": (MISSING, "cut.jsonl"),
    "eval ref.py k.py --address http://127.0.0.1:9 --address-key {}": (MISSING, FOLDER),
    "serve --port 0 --keys {}": (MISSING, FOLDER, FILE),
    "serve --port 0 --state {}": WRITTEN,
    "serve --port 0 --options {}": (MISSING, FOLDER, "bad.yaml"),
    "eval ref.py k.py --options {}": (MISSING, FOLDER, "bad.yaml"),
    "mcp --suite {}": TASKS,
    "preflight --config-name=mine --config-dir={}": READ,
    "plan --config-name=mine --config-dir={}": READ,
}
"""Command lines by what stands in their braces, each of which cannot work there."""
WITHOUT_PATHS = {"doctor", "serve-status", "serve-drain"}
RECIPES = {"recipes.cpu_smollm2", "recipes.cpu_study"}
LATE = {
    **{
        f"aces tasks.parquet --candidates {path} --out o.json": "store them as <task_id>/<name>.py"
        for path in (*READ, FOLDER)
    },
    "bench --suite cpu --kernels empty": "empty holds no kernel for suite cpu",
    **{f"serve --port 0 --state {path}": f"--state is {path}, where nothing can be recorded" for path in WRITTEN},
    "data coldstart --suite tasks.parquet --run r --out o.parquet --base-url http://127.0.0.1:9/v1": (
        "--base-url and --model go together"
    ),
}
"""As `LINES`, but said after torch is imported."""
CASES = LINES | LATE | {line.format(path): path for line, paths in PATHS.items() for path in paths} | LINES | LATE


def quick() -> Iterator[str]:
    """One line of each command, and one of each sentence without what it quotes of its line."""
    seen = set[str]()
    for line, sentence in CASES.items():
        words = line.split()
        plain = functools.reduce(lambda text, word: text.replace(word, ""), words, sentence)
        kinds = {" ".join(words[: 1 + (words[0] == "data")]), plain}
        if kinds - seen:
            yield line
        seen |= kinds


QUICK = {*quick()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = bad_files(tmp_path_factory.mktemp("bad"))
    write_run(root / UNANSWERED, {})
    return root


@pytest.fixture(scope="module")
def done(folder: Path) -> Callable[[str], Done]:
    """How a line ended; the lines of `make test` are run together, and so are the others."""

    @functools.cache
    def together(is_quick: bool) -> dict[str, Done]:
        lines = [line for line in CASES if (line in QUICK) == is_quick]
        return dict(zip(lines, run_lines([line.split() for line in lines], folder), strict=True))

    return lambda line: together(line in QUICK)[line]


def test_every_command_that_takes_a_path_is_here():
    named = {tuple(line.split()[:2]) for line in PATHS}
    assert {first for first, _ in named} == COMMANDS.keys() - WITHOUT_PATHS | RECIPES
    known = {each.name or each.callback.__name__ for each in data.app.registered_commands if each.callback}
    assert {second for first, second in named if first == "data"} == known


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", [line if line in QUICK else pytest.param(line, marks=pytest.mark.exhaustive) for line in CASES]
)
def test_it_is_a_usage_error_in_one_sentence_with_a_remedy(folder: Path, done: Callable[[str], Done], line: str):
    ended = done(line)
    assert_one_sentence(ended.error, CASES[line].replace("{here}", str(folder)))
    assert ": " in ended.error.removeprefix("Error: ") or "; " in ended.error, "no remedy"
    assert ended.out == "" or line.startswith(("aces", "recipes."))  # which say first what they go on with
    assert ended.status == (1 if line.startswith("preflight") else 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "lines", [QUICK - LATE.keys(), pytest.param(CASES.keys() - LATE.keys(), marks=pytest.mark.exhaustive)]
)
def test_nothing_heavy_is_imported_before_checks(done: Callable[[str], Done], lines: set[str]):
    assert {line: done(line).heavy for line in lines if done(line).heavy} == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "lines", [QUICK - LATE.keys(), pytest.param(CASES.keys() - LATE.keys(), marks=pytest.mark.exhaustive)]
)
def test_it_takes_less_than_two_seconds(done: Callable[[str], Done], lines: set[str]):
    assert {line: done(line).seconds for line in lines if done(line).seconds >= 2} == {}


@pytest.mark.slow
def test_no_file_was_changed_and_nothing_was_left_behind(folder: Path, done: Callable[[str], Done]):
    assert done(min(QUICK)).status
    assert (folder / "file").read_text() == "text\n"
    assert not [*(folder / "empty").iterdir()]
    assert not [name for name in ("o", "w", "r") if (folder / name).exists()]
    assert not [*folder.glob("o*.parquet"), *folder.glob("*.part"), *folder.glob("o.json")]


def test_a_parquet_file_with_a_hole_is_told_to_be_damaged(tmp_path: Path, folder: Path):
    from verl_kernel.data.rows import read_rows
    from verl_kernel.errors import DataError

    shutil.copy(folder / "tasks.parquet", tmp_path / "hole.parquet")
    text = bytearray((tmp_path / "hole.parquet").read_bytes())
    text[4:-8] = bytes(len(text) - 12)
    (tmp_path / "hole.parquet").write_bytes(text)
    with pytest.raises(DataError, match=r"hole\.parquet is damaged: make or fetch it anew"):
        read_rows(tmp_path / "hole.parquet")


@pytest.mark.slow
def test_a_full_disk_is_no_usage_error(tmp_path: Path):
    files.write(tmp_path, "drkernel-rl", 40)
    (source,) = tmp_path.glob("*.parquet")
    words = f"verl-kernel data rows drkernel-rl {source} --out {tmp_path}/small/o.parquet"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", f"ulimit -f 1; {words}"], capture_output=True, text=True, env=environment)
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith(f"Error: {tmp_path}/small/o.parquet cannot be written (File too large): free space")
    assert done.stderr.count("\n") == 1
    assert not list((tmp_path / "small").iterdir())


def test_a_command_line_is_not_offered_null():
    message = "kernelgym.address is 'x'; it must be an address, or null"
    named = sentences.sentence(ConfigError(message), {"address": "--address"})
    assert named == "--address is 'x'; it must be an address"
    assert sentences.sentence(ConfigError(message), {}) == message
