# SPDX-License-Identifier: Apache-2.0
"""A profile of a kernel file as one HTML page that loads nothing else; a candidate's text is escaped in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from verl_kernel.env import EvalResult, ForwardProfile, LaunchProfile, gpu_named
from verl_kernel.figures.profile_lines import change_text, measured_ms, micro, share, size
from verl_kernel.reporting import pages
from verl_kernel.reporting.roofline import KernelWork, roofline

Row = tuple[str, ...]


def write_profile_page(path: Path, result: EvalResult, source: str) -> Path:
    """Write the page of a result that has a profile.

    Args:
        path: the page's file.
        result: the result.
        source: the candidate's text, whose lines are quoted.

    Raises:
        OSError: the page cannot be written; an older one stays.
    """
    profile, measured = result.profile, measured_ms(result)
    assert profile is not None  # the caller has refused other results
    environment = pages.page_environment("verl_kernel.reporting")
    environment.filters |= {"micro": micro, "size": size}
    page = environment.get_template("profile.html").render(
        name=result.kernel or result.task_id,
        clock="predicted" + (", with measured times beside" if measured else ""),
        facts=_facts(result, profile),
        headlines=_headlines(result, profile, measured),
        chart=roofline(gpu_named(str(result.env.get("gpu_profile", "h100"))), [*map(_work, profile.launches)]),
        launches=[
            (launch, _figures(launch, measured), _waste(launch, source.splitlines())) for launch in profile.launches
        ],
        changes=[
            (change_text(change), micro(change.ms), f"-{1 - change.ms / profile.ms:.0%}") for change in profile.changes
        ],
    )
    return pages.write_page(path, page)


def _facts(result: EvalResult, profile: ForwardProfile) -> dict[str, str]:
    targets = result.compiled_for or "no GPU"
    return {
        "task": result.task_id,
        "verdict": result.status.value,
        "GPU of the prediction": profile.gpu,
        "speedup": "unknown" if result.speedup is None else f"{result.speedup:.2f}x ({result.timing_source})",
        "compiled for": targets if isinstance(targets, str) else ", ".join(targets),
    }


def _headlines(result: EvalResult, profile: ForwardProfile, measured: Mapping[str, float]) -> list[Row]:
    minimum = "unknown" if profile.least_bytes is None else size(profile.least_bytes)
    roof = "unknown" if profile.roofline is None else share(profile.roofline)
    rows: list[Row] = [
        ("Forward, predicted", micro(profile.ms), f"of which {micro(profile.host_ms)} wait for the host")
    ]
    if measured:
        rows.append(("Forward, measured", micro(measured[""]), str(result.env.get("gpu_name", ""))))
    rows.append(("Roofline", roof, "of the task's, predicted"))
    rows.append(("dram__bytes, predicted", size(profile.dram_bytes), f"the task needs {minimum}"))
    return rows


def _work(launch: LaunchProfile) -> KernelWork:
    return KernelWork(launch.name, launch.flops, launch.dram_bytes, launch.ms)


def _figures(launch: LaunchProfile, measured: Mapping[str, float]) -> dict[str, str]:
    """Return the figures of a launch by name; names are those of Nsight Compute where the meaning is the same."""
    launch_ms, unknown = measured.get(launch.name), "not compiled"
    figures = {
        "gpu__time_duration, predicted": micro(launch.ms),
        **({} if launch_ms is None else {"gpu__time_duration, measured": micro(launch_ms / launch.count)}),
        "launches in a forward": str(launch.count),
        "bound by": launch.bound,
        "share of its roofline": share(launch.roofline),
        "dram__bytes": size(launch.dram_bytes),
        "lts__t_bytes": size(launch.l2_bytes),
        "Grid Size": " x ".join(map(str, launch.grid)),
        "SMs with work": f"{launch.sms} of {launch.gpu_sms}",
        "Waves Per SM": f"{launch.waves:.2f}",
        "programs as heavy as the heaviest": str(launch.even_blocks),
        "Theoretical Occupancy": f"{launch.theoretical_occupancy:.0%}",
        "places for warps taken": share(launch.occupancy),
        "occupancy limited by": launch.limit or unknown,
        "Registers Per Thread": unknown if launch.registers is None else str(launch.registers),
        "spilled by a thread": unknown if launch.spills is None else size(launch.spills),
        "Shared Memory Per Block": unknown if launch.shared is None else size(launch.shared),
        "operations": f"{launch.flops:,}",
        "operations on tensor cores": f"{launch.product_flops:,}",
        "why no tensor cores": launch.no_tensor_cores or "",
    }
    return {name: text for name, text in figures.items() if text}


def _waste(launch: LaunchProfile, lines: list[str]) -> list[Row]:
    """Return the wasteful lines of a launch with their text."""
    return [
        (
            "" if waste.line is None else str(waste.line),
            f"{waste.access} of {waste.tensor}",
            f"{waste.sectors:,}",
            f"{waste.needed:,}",
            lines[waste.line - 1].strip() if waste.line is not None and waste.line <= len(lines) else "",
        )
        for waste in launch.wasted
    ]
