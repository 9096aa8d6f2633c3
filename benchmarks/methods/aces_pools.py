# SPDX-License-Identifier: Apache-2.0
"""Does ACES choose inputs that keep the rejections of a pool? Against random inputs, the hardest and greedy cover.

Run: python benchmarks/methods/aces_pools.py [--recorded]. Judges seven pools of right and faulty kernels on 24 inputs
each (a minute of an idle machine; `--recorded` takes the last table instead), then draws 200 pools of candidates with
replacement and chooses inputs by each. Writes data/methods/aces_pools.json and aces_pools.svg.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verl_kernel.aces import weights
from verl_kernel.aces.allocation import allocate, expected_rejections
from verl_kernel.aces.table import IdenticalTests, Table
from verl_kernel.reporting.plots import drawing

FOLDER = Path(__file__).parents[2] / "data" / "methods"
SIZES = (1, 2, 3, 4, 6, 12)
RESAMPLINGS = 200
STEPS = 20
"""Of ACES-O; more change no choice here and cost minutes."""
OWN_PLAN = {"drawn": 3, "varied": 1, "large": 1}
"""The judge's own five trials."""
Matrix = NDArray[np.int_]
Order = list[int]


def ranked(values: NDArray[np.float64], rng: np.random.Generator) -> Order:
    """Columns from the largest value down, equal ones in random order."""
    shuffled = rng.permutation(values.size)
    return [int(column) for column in shuffled[np.argsort(-values[shuffled].round(12), kind="stable")]]


def by_aces(method: str) -> Callable[[Matrix, np.random.Generator], Order]:
    """Columns by weight, one of each group of identical ones before the second of any."""

    def order(matrix: Matrix, rng: np.random.Generator) -> Order:
        found = weights(matrix, method, init="uniform", steps=STEPS)
        groups = IdenticalTests.find(Table.read(matrix))
        mass = np.bincount(groups.number, found.values)
        first, rest = [], []
        seen: set[int] = set()
        for column in rng.permutation(matrix.shape[1]):
            group = int(groups.number[column])
            (rest if group in seen else first).append(int(column))
            seen.add(group)
        first.sort(key=lambda column: -round(float(mass[groups.number[column]]), 12))
        useful = [column for column in first if mass[groups.number[column]] > 0]
        return useful + [int(c) for c in rng.permutation([c for c in first + rest if c not in set(useful)])]

    return order


def by_chance(matrix: Matrix, rng: np.random.Generator) -> Order:
    """Any order."""
    return [int(column) for column in rng.permutation(matrix.shape[1])]


def by_rejections(matrix: Matrix, rng: np.random.Generator) -> Order:
    """The hardest first."""
    return ranked(1.0 - matrix.mean(0), rng)


def by_cover(matrix: Matrix, rng: np.random.Generator) -> Order:
    """Each time the column that rejects most of the candidates that no earlier one rejects."""
    order: Order = []
    open_rows = np.ones(len(matrix), bool)
    while len(order) < matrix.shape[1]:
        gain = (1.0 - matrix[open_rows]).sum(0)
        gain[order] = -1.0
        order.append(ranked(gain, rng)[0])
        open_rows &= matrix[:, order[-1]] == 1
    return order


METHODS: dict[str, Callable[[Matrix, np.random.Generator], Order]] = {
    "ACES-C": by_aces("c"), "ACES-O": by_aces("o"), "random": by_chance, "hardest first": by_rejections,
    "greedy cover": by_cover,
}  # fmt: skip


def kept(matrix: Matrix, chosen: Order) -> float:
    """Share of the candidates rejected by any column that the chosen ones reject."""
    rejected = (matrix == 0).any(1)
    return float((matrix[rejected][:, chosen] == 0).any(1).mean()) if rejected.any() else 1.0


def resample(tables: dict[str, Matrix]) -> dict[str, Any]:
    """By method, size and task: share of rejections kept within the pool drawn and by candidates left out of it."""
    rng, found = np.random.default_rng(0), []
    for _ in range(RESAMPLINGS):
        for task, matrix in tables.items():
            rows = rng.integers(0, len(matrix), len(matrix))
            others = np.setdiff1d(np.arange(len(matrix)), rows)
            for method, order in METHODS.items():
                columns = order(matrix[rows], rng)
                for size in SIZES:
                    inside, outside = (kept(matrix[part], columns[:size]) for part in (rows, others))
                    found.append((task, method, size, inside, outside))
    return {task: _summary([row[1:] for row in found if row[0] == task]) for task in tables} | {
        "all": _summary([row[1:] for row in found], len(tables))
    }


def _summary(rows: list[tuple[str, int, float, float]], together: int = 1) -> dict[str, Any]:
    """Means with the 2.5th and 97.5th percentile over resamplings, each the mean of its tasks.

    `aces_c_more` is by how much ACES-C keeps all more often on the same resamplings.
    """
    answer: dict[str, Any] = {}
    first: dict[int, NDArray[np.float64]] = {}
    for method in METHODS:
        for size in SIZES:
            values = np.array([row[2:] for row in rows if row[:2] == (method, size)])
            inside, outside = values.reshape(-1, together, 2).mean(1).T
            whole = (values[:, 0] == 1).reshape(-1, together).mean(1)
            more = first.setdefault(size, whole) - whole
            measures = {"kept": inside, "kept_all": whole, "kept_left_out": outside, "aces_c_more": more}
            answer.setdefault(method, {})[str(size)] = {name: _interval(each) for name, each in measures.items()}
    return answer


def _interval(values: NDArray[np.float64]) -> list[float]:
    return [round(float(value), 4) for value in (values.mean(), *np.percentile(values, [2.5, 97.5]))]


def plans(tables: dict[str, Matrix], kinds: list[str]) -> dict[str, Any]:
    """Five fresh trials: expected share of rejections by the judge's own plan, by ACES' kinds, and by even ones.

    Kinds are chosen on drawn candidates and half of the inputs; rejections are those of the candidates left out, at the
    pass rates of the other half.
    """
    rng, label = np.random.default_rng(1), np.array(kinds)
    halves = np.arange(len(kinds)) % 2 == 0
    found: dict[str, list[list[float]]] = {}
    for _ in range(RESAMPLINGS):
        for task, matrix in tables.items():
            rows = rng.integers(0, len(matrix), len(matrix))
            others = np.setdiff1d(np.arange(len(matrix)), rows)
            left = matrix[others][:, ~halves]
            rejected = left[(left == 0).any(1)]
            seen = matrix[rows][:, halves]
            aces = allocate(weights(seen).values, list(label[halves]), 5)
            choices = (OWN_PLAN, aces, {"drawn": 1, "varied": 2, "large": 2})
            if len(rejected):
                rates = [expected_rejections(rejected, list(label[~halves]), each) / len(rejected) for each in choices]
                found.setdefault(task, []).append([*rates, aces["varied"], aces["large"]])
    names = ("own", "aces", "even", "aces_varied", "aces_large")
    return {
        task: {name: _interval(np.array(rows)[:, at]) for at, name in enumerate(names)} for task, rows in found.items()
    }


def draw(data: dict[str, Any], path: Path) -> None:
    """Share of rejections kept against the number of inputs, over all tasks."""
    with drawing(path, 1, 2, figsize=(8.4, 3.2), sharey=True) as (_, axes):
        titles = {"kept": "the pool that chose", "kept_left_out": "candidates left out of it"}
        for axis, (measure, title) in zip(axes, titles.items(), strict=True):
            for number, method in enumerate(METHODS):
                mean, low, high = (
                    np.array([data["resampled"]["all"][method][str(size)][measure] for size in SIZES]).T * 100
                )
                where = np.arange(len(SIZES)) + (number - 2) * 0.12
                axis.errorbar(
                    where, mean, [mean - low, high - mean], label=method, marker="o", markersize=3, linewidth=1
                )
            axis.set(
                title=title, xlabel="inputs chosen of 24", xticks=range(len(SIZES)), xticklabels=SIZES, ylim=(50, 102)
            )
        axes[0].set_ylabel("% of rejections kept")
        axes[1].legend(frameon=False, loc="lower right")


def tables_of(data: dict[str, Any]) -> dict[str, Matrix]:
    """By pool: 1 where a candidate's trial ended well."""
    return {name: np.array([[int(cell == "ok") for cell in row] for row in rows.values()])
            for name, rows in data["pools"].items()}  # fmt: skip


def _half(matrix: Matrix) -> dict[str, float]:
    """Share of a whole pool's rejections kept by half of the inputs, by method."""
    orders = {method: order(matrix, np.random.default_rng(0)) for method, order in METHODS.items()}
    return {method: kept(matrix, order[:12]) for method, order in orders.items()}


def analysed(data: dict[str, Any]) -> dict[str, Any]:
    """The table with what follows from it."""
    tables = tables_of(data)
    table = {key: data[key] for key in ("sources", "seed", "kinds", "pools")}
    full = {task: _half(matrix) for task, matrix in tables.items()}
    return {
        **table, "half_of_the_whole_pool": full, "resampled": resample(tables), "plans": plans(tables, data["kinds"]),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recorded", action="store_true", help="take the recorded table, judge nothing")
    file = FOLDER / "aces_pools.json"
    if parser.parse_args().recorded:
        data = json.loads(file.read_text())
    else:
        from aces_survey import survey

        data = survey()
    FOLDER.mkdir(parents=True, exist_ok=True)
    data = analysed(data)
    text = json.dumps(data, indent=1)
    file.write_text(re.sub(r"\[[^\[\]{}]*\]", lambda part: " ".join(part[0].split()), text) + "\n")
    draw(data, FOLDER / "aces_pools.svg")
    for method, sizes in data["resampled"]["all"].items():
        print(
            f"{method:14}",
            *[f"{size}: {each['kept'][0]:.3f}/{each['kept_left_out'][0]:.3f}" for size, each in sizes.items()],
        )


if __name__ == "__main__":
    main()
