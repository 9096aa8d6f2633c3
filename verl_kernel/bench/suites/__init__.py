# SPDX-License-Identifier: Apache-2.0
"""The suites that a bench knows, by the word on the command line."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from verl_kernel.bench.suites.suite import Suite, SuiteItem
from verl_kernel.errors import DataError

__all__ = ["Suite", "SuiteItem", "load_suite"]


def load_suite(name: str, levels: Collection[int] = ()) -> Suite:
    """The suite called `cpu`, `kernelbench:PATH`, `FILE.parquet` or `FOLDER`.

    Args:
        name: which.
        levels: of KernelBench's problems; all where none is named.

    Raises:
        DataError: it is not there, or a task of it is damaged; names the file.
        ConfigError: levels are given for another suite.
    """
    from verl_kernel.bench.suites import files

    kind, colon, path = name.partition(":")
    if colon and kind == "kernelbench":
        return files.kernelbench_suite(Path(path), levels)
    files.refuse_levels(levels, name)
    if name == "cpu":
        from verl_kernel.bench.suites.built_in import cpu_suite

        return cpu_suite()
    if Path(name).is_dir():
        return files.folder_suite(Path(name))
    if Path(name).is_file():
        return files.parquet_suite(Path(name))
    raise DataError(f"--suite is {name!r}; it must be cpu, kernelbench:PATH, a parquet file or a folder of references")
