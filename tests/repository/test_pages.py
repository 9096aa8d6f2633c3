# SPDX-License-Identifier: Apache-2.0
"""Pages name what exists: commands, keys, figures of the preset, links and paths (tests/test_docs.py runs examples)."""

import ast
import importlib.metadata
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from tests.commands.lines import invoked
from tests.config.composed import composed
from tests.preflight.folder import BATCH, row
from tests.repository.pages import FENCE, HOWTOS, PAGES, ROOT, blocks, commands, copy_package, save
from verl_kernel import __version__
from verl_kernel.cli import COMMANDS
from verl_kernel.data.rows import write_rows
from verl_kernel.data.sources import SOURCES, Source
from verl_kernel.preflight.machine import INSTALL_FLASH

MAKEFILE = (ROOT / "Makefile").read_text()
LOCKED = (ROOT / "requirements" / "cpu.txt").read_text().splitlines()
RUFF = Path(sys.executable).with_name("ruff")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
DESIGN = PAGES["docs/design.md"].partition("## Where things stand")[2].partition("\n## ")[0]
PLACES = re.findall(r"`((?:verl_kernel|tests)/[^`]+)`", DESIGN)
WALKS = PAGES["docs/design.md"].partition("## Five walks")[2].partition("\n## ")[0].split("**\n\n")[1:]
STEP = re.compile(r"^\d+\. `([\w/]+\.py)` calls `([\w.]+)`", re.M)
UNPLAIN = ("anew", "whoever", "somebody", "nobody else", "of the one", "bring about", "thereof", "whereof", "hereby")
"""Words that a newcomer has to decode; CONTRIBUTING.md shows what to write in their place."""


def words_of(line: str) -> list[str]:
    """A command line's words, without variables before it, a comment and what it redirects to a file."""
    words = shlex.split(line.partition(" > ")[0], comments=True)
    return [word for word in words if not re.fullmatch(r"[A-Z_]+=\S*", word)]


def test_every_shell_block_says_how_it_is_checked():
    found = [(page, block) for page in PAGES for block in blocks(page)]
    kinds = {"run", "here", "long", "gpu"}
    assert [(page, block) for page, block in found if block.is_shell and block.name not in kinds] == []
    assert [(page, block) for page, block in found if not block.language and block.body.startswith("$")] == []


@pytest.mark.parametrize(("page", "line"), commands("long", "gpu"))
def test_what_a_block_names_exists(page, line):
    assert exists(words_of(line))


def exists(words: list[str]) -> bool:
    """Whether this repository, or a package that it locks, has what a command line names."""
    match words:
        case ["make", target, *_]:
            return re.search(rf"^{target}:", MAKEFILE, re.M) is not None
        case ["pip", "install", *requirements]:
            return is_installable([word for word in requirements if word != "--no-deps"])
        case ["verl-kernel", command, *_]:
            return command in COMMANDS
        case ["hf", "download", *arguments]:
            return arguments in [fetched(source) for source in SOURCES.values() if source.host == "huggingface.co"]
        case ["python", "-m", "verl.model_merger", *arguments]:
            merger = Path(find_spec("verl").submodule_search_locations[0], "model_merger", "__main__.py")
            return merger.is_file() and {"merge", "--backend", "--local_dir", "--target_dir"} <= {*arguments}
        case ["python", "-m", "verl.trainer.main_ppo", *arguments]:
            return any(word.startswith("--config-dir") for word in arguments) or composes(arguments)
        case ["python", "-m", module, *_] if module.startswith("recipes."):
            return find_spec(f"{module}.__main__") is not None
        case ["python", script, *_] | ["inspect", "eval", script, *_]:
            return (ROOT / script).is_file()
        case [script, *arguments] if script.startswith("recipes/"):
            return os.access(ROOT / script, os.X_OK) and composes([f"--config-name={recipe_of(script)}", *arguments])
    return False


def is_installable(requirements: list[str]) -> bool:
    """A lock file that exists, the checkout, our wheel with an extra that exists, or a locked package's version."""
    wheel = f"dist/verl_kernel-{__version__}-py3-none-any.whl"
    extras = importlib.metadata.metadata("verl-kernel").get_all("Provides-Extra")
    match requirements:
        case ["-r", file] | ["--target", _, "-r", file]:
            return (ROOT / file).is_file()
        case ["-e", "."] | ["."]:
            return True
        case [requirement]:
            return requirement in [*LOCKED, *(f"{wheel}[{extra}]" for extra in extras)]
        case ["--no-build-isolation", requirement]:
            needs = importlib.metadata.requires("verl") or []
            return INSTALL_FLASH.endswith(requirement) and any(need.startswith(f"{requirement};") for need in needs)
    return False


def fetched(source: Source) -> list[str]:
    """The arguments of `hf download` that a source's own message names, with the folder of the page."""
    folder = {"hkust-nlp/drkernel-rl-data": "rl", "hkust-nlp/drkernel-validation-data": "validation"}.get(
        source.repository, "coldstart" if "coldstart" in source.repository else "kernelbook"
    )
    command = re.search(r"`hf download (.*?)`", source.advice)[1]
    return command.replace("DIR", f"data/published/{folder}").split()


def recipe_of(script: str) -> str:
    """The name of the configuration that a recipe's script starts with."""
    folder = Path(script).parent.name
    return {"cpu_study": "cpu_hard"}.get(folder, folder) + Path(script).stem.removeprefix("run").removeprefix("compare")


def composes(arguments: list[str]) -> bool:
    """True; an error of Hydra's says what does not compose."""
    names = [word.partition("=")[2] for word in arguments if word.startswith("--config-name=")]
    composed(*(names or ["ppo_trainer"]), *(word for word in arguments if not word.startswith("--")))
    return True


def training(line: str) -> list[str] | None:
    """The arguments of `verl-kernel preflight` for a command that trains on GPUs; None for any other."""
    match words_of(line):
        case ["python", "-m", "verl.trainer.main_ppo", *arguments] | ["verl-kernel", "preflight", *arguments]:
            return arguments
        case [script, *arguments] if script.endswith("/run.sh"):
            return [f"--config-name={recipe_of(script)}", *arguments]
    return None


GPU_RUNS = [(page, line) for page, line in commands("gpu") if training(line) is not None]


@pytest.fixture(scope="module")
def folder_of_a_reader(tmp_path_factory) -> Path:
    """What the GPU pages take for granted: data, a cold start, and a recipe of the reader's own."""
    folder = tmp_path_factory.mktemp("reader")
    for path in ("train", "val", "data/drkernel/cuda_llm_rl_thinking_1025", "data/drkernel/validation_data_thinking"):
        (folder / f"{path}.parquet").parent.mkdir(parents=True, exist_ok=True)
        write_rows([row()] * 4 * BATCH, folder / f"{path}.parquet")
    for size in ("8b", "14b"):
        model = folder / f"outputs/drkernel_{size}_sft/model"
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")
    for recipe in (ROOT / "examples/verl").iterdir():
        shutil.copy(recipe, folder)
    return folder


@pytest.mark.parametrize(("page", "line"), GPU_RUNS)
def test_a_gpu_command_passes_preflight(page, line, folder_of_a_reader, monkeypatch):
    monkeypatch.chdir(folder_of_a_reader)
    words = training(line)
    # With a cluster named there are two nodes.
    machine = () if "--machine" in words else ("--machine", f"{'2x' if 'RAY_ADDRESS=' in line else ''}8xH100-80GB")
    invoked("preflight", *words, *machine)


def test_the_pages_have_trainings_on_gpus():
    assert {"README.md", "docs/train_on_gpus.md", "recipes/drkernel_8b/README.md"} <= {page for page, _ in GPU_RUNS}


def test_the_data_walk_ends_with_the_recipes_files():
    walk = [line for page, line in commands("long") if page == "docs/data.md" and " --out data/drkernel/" in line]
    rl, sft = composed("drkernel_8b").data, composed("drkernel_8b_sft").data
    assert {shlex.split(line)[-1] for line in walk} == {rl.train_files, rl.val_files, sft.train_files}


SET = ("docs/train_on_gpus.md", "docs/troubleshooting.md", "recipes/drkernel_8b/README.md", "examples/README.md")


@pytest.mark.parametrize("page", SET)
def test_the_keys_of_a_gpu_page_compose(page):
    inline = [word for code in re.findall(r"`([^`]+)`", FENCE.sub("", PAGES[page])) for word in code.split()]
    node = r"\+?(?:kernelgym|algorithm|data|actor_rollout_ref|trainer|mismatch|gpus|cold_start_model)"
    settings = [word for word in inline if re.fullmatch(rf"{node}[\w.]*=(?!\.)\S+", word)]
    keys = [word for word in inline if re.fullmatch(r"(?:algorithm|data|actor_rollout_ref|trainer)\.[\w.]+", word)]
    assert settings
    assert keys
    for setting in settings:
        composed("drkernel_8b", setting)
    recipe = composed("drkernel_8b")
    assert [key for key in keys if OmegaConf.select(recipe, key, default=key) == key] == []


def test_the_figures_of_the_eight_gpus_are_those_of_the_preset():
    recipe = composed("kernel_trloo")
    seen = 0
    for keys, values in re.findall(r"^\| (`.*`) \| (.*?) \| .* \|$", PAGES["docs/train_on_gpus.md"], re.M):
        found = [OmegaConf.select(recipe, key) for key in re.findall(r"`([\w.]+)`", keys)]
        words = values.split(", ")
        if all(value is not None for value in found):
            flat = [str(one).lower() for value in found for one in (value if OmegaConf.is_list(value) else [value])]
            assert flat == (words * len(flat) if len(words) == 1 else words), keys
            seen += 1
    assert seen == 15


@pytest.mark.parametrize("page", HOWTOS)
def test_what_a_page_saves_in_a_checkout_passes_the_linter(page, tmp_path):
    copy_package(tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    files = save(page, tmp_path)
    for words in (["check"], ["format", "--check"]):
        done = subprocess.run([RUFF, *words, *files], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_linter_looks_at_what_a_page_saves(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "saved.py").write_text("import os\n")
    done = subprocess.run([RUFF, "check", "saved.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "F401" in done.stdout
    assert "D100" in done.stdout


def test_every_page_is_reached_from_the_index():
    linked = {(ROOT / "docs" / target).resolve() for target in LINK.findall(PAGES["docs/index.md"])}
    pages = [page for page in PAGES if re.match(r"docs/((algorithms|howto|notes)/)?\w+\.md", page)]
    assert [page for page in pages if page != "docs/index.md" and ROOT / page not in linked] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_and_paths_of_a_page_exist(page):
    links = LINK.findall(FENCE.sub("", PAGES[page]))
    assert [target for target in links if not (ROOT / page).parent.joinpath(target).exists()] == []
    made = {block.name for block in blocks(page) if block.language == "python"}
    paths = {*re.findall(r"`((?:verl_kernel|recipes|examples|docs|requirements|tests)/[\w./]+)`", PAGES[page])}
    assert [path for path in paths - made if not (ROOT / path).exists()] == []


def test_a_block_that_names_a_file_of_ours_shows_it():
    shown = [block for page in PAGES for block in blocks(page) if block.name.startswith("examples/")]
    assert shown
    assert [block.name for block in shown if (ROOT / block.name).read_text() != block.body] == []


def test_the_tested_versions_are_those_of_lock_and_package():
    locked = dict(line.split("==") for line in LOCKED if re.match(r"(torch|triton)==", line))
    lowest, highest = re.search(r'"triton>=(3\.\d),<3\.(\d+)"', (ROOT / "pyproject.toml").read_text()).groups()
    said = f"torch {locked['torch']} with Triton {locked['triton']}; the gym also with the other Tritons that it allows"
    assert f"{said}, {lowest} to 3.{int(highest) - 1} (" in PAGES["docs/troubleshooting.md"]


EXAMPLES = [path for path in (ROOT / "examples").rglob("*") if path.suffix in (".py", ".yaml", ".toml")]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_short_and_listed(example):
    assert example.read_text().count("\n") <= 60
    parts = example.relative_to(ROOT / "examples").parts
    assert {parts[0], "/".join(parts)} & {*re.findall(r"[\w./]+", PAGES["examples/README.md"])}


PROMISE = re.compile(r"After this page you (can|know) ")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if re.match(r"(docs/(?!notes/|index)|recipes|data|examples)", page)]
)
def test_a_page_begins_with_what_one_can_do_after_it(page):
    assert PROMISE.match(PAGES[page].partition("\n\n")[2]), page


def test_the_pages_to_read_have_at_most_16000_words():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2])
    pages = [page for tab in nav[:4] for page in next(iter(tab.values()))]
    assert sum(len(FENCE.sub("", PAGES[page]).split()) for page in pages) <= 16_000


def test_a_place_in_the_design_is_a_folder_where_it_says_so():
    assert len(PLACES) > 20
    assert [place for place in PLACES if (ROOT / place).is_dir() != place.endswith("/")] == []


def called(source: str) -> set[str]:
    """Names of what a source calls, or hands to a call."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    parts = [part for call in calls for item in (call.func, *call.args) for part in ast.walk(item)]
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return names | {part.attr for part in parts if isinstance(part, ast.Attribute)}


@pytest.mark.parametrize("walk", WALKS, ids=range(len(WALKS)))
def test_a_walk_through_the_design_goes_from_call_to_call(walk):
    steps = [line for line in walk.splitlines() if re.match(r"\d", line)]
    assert 5 <= len(STEP.findall(walk)) == len(steps) <= 10
    for file, function in STEP.findall(walk):
        assert callable(pkgutil.resolve_name(f"verl_kernel.{function}")), function
        assert function.rpartition(".")[2] in called((ROOT / "verl_kernel" / file).read_text()), (file, function)


def test_there_are_five_walks():
    assert len(WALKS) == 5


def test_pages_use_no_word_that_must_be_decoded():
    words = re.compile(rf"\b({'|'.join(UNPLAIN)})\b", re.IGNORECASE)
    pages = [page for page in PAGES if page == "README.md" or page.startswith("docs/")]
    assert [(page, found[0]) for page in pages for found in words.finditer(PAGES[page])] == []
