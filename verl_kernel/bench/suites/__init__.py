# SPDX-License-Identifier: Apache-2.0
"""The suites of a bench, by their names on the command line."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from verl_kernel.bench.suites.suite import Suite, SuiteItem
from verl_kernel.errors import ConfigError, DataError

__all__ = ["Suite", "SuiteItem", "load_suite"]


def load_suite(name: str, levels: Collection[int] = ()) -> Suite:
    """Return the suite called `cpu`, `kernelbench:PATH`, `FILE.parquet` or `FOLDER`.

    Args:
        name: name of the suite.
        levels: levels of KernelBench's problems; all if none is named.

    Raises:
        DataError: the suite does not exist, or one of its tasks is damaged; the message names the file.
        ConfigError: levels are given for another suite.
    """
    kind, colon, path = name.partition(":")
    is_kernelbench = bool(colon) and kind == "kernelbench"
    if levels and not is_kernelbench:
        raise ConfigError(f"--levels chooses problems of KernelBench, and --suite is {name}: leave it out")
    if name == "cpu":
        from verl_kernel.bench.suites.built_in import cpu_suite

        return cpu_suite()
    if not (is_kernelbench or _is_there(Path(name))):
        raise DataError(
            f"--suite is {name!r}; it must be cpu, kernelbench:PATH, a parquet file or a folder of references"
        )
    from verl_kernel.bench.suites import files

    if is_kernelbench:
        return files.kernelbench_suite(Path(path), levels)
    return files.folder_suite(Path(name)) if Path(name).is_dir() else files.parquet_suite(Path(name))


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # the name is too long, or the folder may not be read
        return False
