# SPDX-License-Identifier: Apache-2.0
"""Commands in the documentation work: `sh run` blocks are executed, all others name what exists."""

import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from typer.testing import CliRunner

from tests.preflight.folder import row
from verl_kernel.cli import COMMANDS, app
from verl_kernel.data.rows import write_rows
from verl_kernel.data.sources import SOURCES, Source
from verl_kernel.preflight.machine import INSTALL_FLASH

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/*/*.md"), *ROOT.glob("recipes/*/README.md")]
)
EXTRAS = importlib.metadata.metadata("verl-kernel").get_all("Provides-Extra")
KINDS = {"run", "long", "gpu", "here"}
"""`here` blocks run in a folder with the files of their page: tests/test_howto.py."""
FENCE = re.compile(r"^```(\S*) ?(\S*)\n(.*?)^```", re.M | re.S)


MINE = """
defaults: [ppo_trainer, _self_]
data: {train_files: train.parquet, val_files: val.parquet, train_batch_size: 16}
actor_rollout_ref:
  model: {path: Qwen/Qwen3-8B}
  actor: {use_dynamic_bsz: true, ppo_mini_batch_size: 16}
  rollout: {name: vllm, n: 8}
trainer: {n_gpus_per_node: 4}
"""
"""A recipe for verl without a word of ours."""


def training(line: str) -> list[str] | None:
    """The arguments of `verl-kernel preflight` for a command that trains on GPUs; None for any other."""
    words = [word for word in shlex.split(line, comments=True) if not re.fullmatch(r"[A-Z_]+=\S*", word)]
    if words[:3] == ["python", "-m", "verl.trainer.main_ppo"]:
        return words[3:]
    if words[:2] == ["verl-kernel", "preflight"]:
        return words[2:]
    if words[0].endswith("/run.sh"):
        return [f"--config-name={Path(words[0]).parent.name}", *words[1:]]
    return None


def commands(*kinds: str) -> list[tuple[str, str]]:
    """(page, command line) of all shell blocks of these kinds."""
    found = []
    for page in PAGES:
        for language, kind, body in FENCE.findall(page.read_text()):
            if language in ("sh", "bash", "shell") and kind in kinds:
                lines = body.replace("\\\n", " ").splitlines()
                found += [(str(page.relative_to(ROOT)), line) for line in lines if line.strip()]
    return found


def test_every_shell_block_says_how_it_is_checked():
    for page in PAGES:
        for language, kind, body in FENCE.findall(page.read_text()):
            assert language != "" or not body.startswith("$"), (page, body)
            if language in ("sh", "bash", "shell"):
                assert kind in KINDS, (page, body)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "line"), commands("run"))
def test_a_run_block_runs(page, line):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("page", "line"), commands("long", "gpu"))
def test_what_a_long_block_names_exists(page, line):
    command = line.partition(" > ")[0]
    words = [word for word in shlex.split(command, comments=True) if not re.fullmatch(r"[A-Z_]+=\S*", word)]
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M)
    elif words[0] == "pip":
        assert words[1] == "install"
        assert installable(words[2:])
    elif words[0] == "verl-kernel":
        assert words[1] in COMMANDS
    elif words[0] == "hf":
        assert words[1] == "download", line
        assert words[2:] in [fetched(source) for source in SOURCES.values()], line
    elif words[:3] == ["python", "-m", "verl.model_merger"]:
        assert find_spec("verl.model_merger.__main__")
        assert {"merge", "--backend", "--local_dir", "--target_dir"} <= {*words}
    elif words[:2] == ["python", "-m"] and words[2].startswith("recipes."):
        assert find_spec(f"{words[2]}.__main__")
    elif words[:2] == ["python", "-m"]:
        assert words[2] == "verl.trainer.main_ppo"
        if not any(word.startswith("--config-dir") for word in words):
            overrides_compose(words[3:])
    elif words[0].startswith("recipes/"):
        assert os.access(ROOT / words[0], os.X_OK)
        recipe = {"cpu_study": "cpu_hard"}.get(Path(words[0]).parent.name, Path(words[0]).parent.name)
        suffix = Path(words[0]).stem.removeprefix("run").removeprefix("compare")
        overrides_compose([f"--config-name={recipe}{suffix}", *words[1:]])
    else:
        assert words[0] == "python"
        assert (ROOT / words[1]).is_file()


GPU_RUNS = [(page, line) for page, line in commands("gpu") if training(line) is not None]


@pytest.mark.parametrize(("page", "line"), GPU_RUNS)
def test_a_gpu_command_passes_preflight_on_a_described_machine(page, line, tmp_path, monkeypatch):
    monkeypatch.chdir(files_of_a_gpu_page(tmp_path))
    words = training(line)
    # With a cluster named there are two nodes.
    machine = () if "--machine" in words else ("--machine", f"{'2x' if 'RAY_ADDRESS=' in line else ''}8xH100-80GB")
    done = CliRunner().invoke(app, ["preflight", *words, *machine])
    assert done.exit_code == 0, (page, done.output)


def test_the_pages_have_trainings_on_gpus():
    assert {"README.md", "docs/train_on_gpus.md", "recipes/drkernel_8b/README.md"} <= {page for page, _ in GPU_RUNS}


def test_the_data_walk_ends_with_the_recipes_files():
    walk = [line for page, line in commands("long") if page == "docs/data.md" and " --out data/drkernel/" in line]
    with initialize_config_module("verl.trainer.config", version_base=None):
        rl, sft = compose("drkernel_8b").data, compose("drkernel_8b_sft").data
        assert {shlex.split(line)[-1] for line in walk} == {rl.train_files, rl.val_files, sft.train_files}


@pytest.mark.parametrize("page", ["docs/train_on_gpus.md", "docs/troubleshooting.md", "recipes/drkernel_8b/README.md"])
def test_the_keys_of_a_gpu_page_compose(page):
    text = FENCE.sub("", (ROOT / page).read_text())
    inline = [word for code in re.findall(r"`([^`]+)`", text) for word in code.split()]
    node = r"\+?(?:kernelgym|algorithm|data|actor_rollout_ref|trainer|mismatch|gpus|cold_start_model)"
    settings = [word for word in inline if re.fullmatch(rf"{node}[\w.]*=(?!\.)\S+", word)]
    keys = [word for word in inline if re.fullmatch(r"(?:algorithm|data|actor_rollout_ref|trainer)\.[\w.]+", word)]
    assert settings
    assert keys
    with initialize_config_module("verl.trainer.config", version_base=None):
        for setting in settings:
            compose("drkernel_8b", overrides=[setting])
        recipe = compose("drkernel_8b")
    for key in keys:
        assert OmegaConf.select(recipe, key, default=key) != key, key


def test_the_figures_of_the_eight_gpus_are_those_of_the_preset():
    rows = re.findall(r"^\| (`.*`) \| (.*?) \| .* \|$", (ROOT / "docs/train_on_gpus.md").read_text(), re.M)
    with initialize_config_module("verl.trainer.config", version_base=None):
        recipe = compose("kernel_trloo")
    seen = 0
    for keys, values in rows:
        found = [OmegaConf.select(recipe, key) for key in re.findall(r"`([\w.]+)`", keys)]
        words = values.split(", ")
        if all(value is not None for value in found):
            flat = [str(one).lower() for value in found for one in (value if OmegaConf.is_list(value) else [value])]
            assert flat == (words * len(flat) if len(words) == 1 else words), keys
            seen += 1
    assert seen == 13


def fetched(source: Source) -> list[str]:
    """The arguments of `hf download` that a source's own message names, with the folder of the page."""
    folder = {"hkust-nlp/drkernel-rl-data": "rl", "hkust-nlp/drkernel-validation-data": "validation"}.get(
        source.repository, "coldstart" if "coldstart" in source.repository else "kernelbook"
    )
    command = re.search(r"`hf download (.*?)`", source.wanted)[1]
    return command.replace("DIR", f"data/published/{folder}").split()


def files_of_a_gpu_page(folder: Path) -> Path:
    """What the GPU pages take for granted: data, a cold start, and a recipe of the reader's own."""
    for path in ("train", "val", "data/drkernel/cuda_llm_rl_thinking_1025", "data/drkernel/validation_data_thinking"):
        (folder / f"{path}.parquet").parent.mkdir(parents=True, exist_ok=True)
        write_rows([row()], folder / f"{path}.parquet")
    for size in ("8b", "14b"):
        model = folder / f"outputs/drkernel_{size}_sft/model"
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")
    (folder / "mine.yaml").write_text(MINE)
    return folder


def installable(words: list[str]) -> bool:
    """A lock file that exists, the checkout, our wheel with an extra that exists, or a locked package's version."""
    lock = (ROOT / "requirements" / "cpu.txt").read_text().splitlines()
    wheel = f"dist/verl_kernel-{importlib.metadata.version('verl-kernel')}-py3-none-any.whl"
    match [word for word in words if word != "--no-deps"]:
        case ["-r", file] | ["--target", _, "-r", file]:
            return (ROOT / file).is_file()
        case ["-e", "."]:
            return True
        case [requirement]:
            return requirement in lock or requirement in {f"{wheel}[{extra}]" for extra in EXTRAS}
        case ["--no-build-isolation", requirement]:
            needs = importlib.metadata.requires("verl") or []
            return INSTALL_FLASH.endswith(requirement) and any(need.startswith(f"{requirement};") for need in needs)
    return False


def overrides_compose(words: list[str]) -> None:
    names = [word.partition("=")[2] for word in words if word.startswith("--config-name=")]
    with initialize_config_module("verl.trainer.config", version_base=None):
        compose(*(names or ["ppo_trainer"]), overrides=[word for word in words if not word.startswith("--")])


def test_every_page_is_reached_from_the_index():
    index = (ROOT / "docs/index.md").read_text()
    linked = {(ROOT / "docs" / target).resolve() for target in re.findall(r"\]\((?!https?:)([^)#]+)", index)}
    pages = {
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/algorithms/*.md"),
        *ROOT.glob("docs/howto/*.md"),
        *ROOT.glob("docs/notes/*.md"),
    }
    assert pages - {ROOT / "docs/index.md"} <= linked


def test_links_and_paths_between_pages_exist():
    for page in PAGES:
        text = page.read_text()
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", FENCE.sub("", text)):
            assert (page.parent / target).exists(), (page.name, target)
        made = {name for language, name, _ in FENCE.findall(text) if language == "python"}
        for target in re.findall(r"`((?:verl_kernel|recipes|examples|docs|requirements)/[\w./]+)`", text):
            assert target in made or (ROOT / target).exists(), (page.name, target)


UNPLAIN = ("anew", "whoever", "somebody", "nobody else", "of the one", "bring about", "thereof", "whereof", "hereby")
"""Words that a newcomer has to decode; CONTRIBUTING.md shows what to write in their place."""


def test_pages_use_no_word_that_must_be_decoded():
    words = re.compile(rf"\b({'|'.join(UNPLAIN)})\b", re.IGNORECASE)
    pages = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    found = [(page.name, match[0]) for page in pages for match in words.finditer(page.read_text())]
    assert found == []
