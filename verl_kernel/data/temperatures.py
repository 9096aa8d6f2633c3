# SPDX-License-Identifier: Apache-2.0
"""Validation rows that are asked at several temperatures.

Training makes likely answers likelier, and so does a lower temperature, for nothing. A policy has learnt more than that
only where it is ahead of the untrained one with each at its own best temperature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verl_kernel.data.rows import Row
from verl_kernel.errors import ConfigError, DataError

MARK = "@"
"""Stands between a name and the temperature, as in `new_chain@0.3`."""
_KEY = "temperature"


def read_temperatures(text: str, key: str) -> tuple[float, ...]:
    """Return the temperatures in a text such as `1,0.6,0.3,0`.

    Raises:
        ConfigError: one is no number from 0 to 2, or occurs twice; the message names `key`.
    """
    try:
        temperatures = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"{key} is {text!r}; it must be numbers with commas between, as in 1,0.6,0.3,0") from None
    if not all(0 <= temperature <= 2 for temperature in temperatures):
        raise ConfigError(f"{key} is {text!r}; each temperature must be from 0 to 2")
    if len(set(temperatures)) < len(temperatures):
        raise ConfigError(f"{key} is {text!r}, which names a temperature twice: name each once")
    return temperatures


def at_temperatures(rows: Sequence[Row], temperatures: Sequence[float]) -> list[Row]:
    """Return each row once for every temperature, with its data source and its task named after it.

    verl reports a validation by data source, so that every temperature has figures of its own.

    Raises:
        DataError: a row has a temperature already.
    """
    if any(temperature_of(row) is not None for row in rows):
        raise DataError("the rows are those of several temperatures already: name the file that they were made from")
    return [_at(row, temperature) for temperature in temperatures for row in rows]


def temperature_of(row: Mapping[str, Any]) -> float | None:
    """Return the temperature that a row asks for; None where the validation's own applies."""
    temperature = (row.get("extra_info") or {}).get(_KEY)
    return None if temperature is None else float(temperature)


def _at(row: Row, temperature: float) -> Row:
    info, suffix = row["extra_info"], f"{MARK}{temperature:g}"
    named = {**info, "task_id": f"{info['task_id']}{suffix}", _KEY: temperature}
    return {**row, "data_source": f"{row['data_source']}{suffix}", "extra_info": named}
