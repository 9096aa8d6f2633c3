# SPDX-License-Identifier: Apache-2.0
"""Writes a profile as a few lines, for a policy and for a terminal; every line says that it predicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from verl_kernel.env import Change, EvalResult, EvalStatus, ForwardProfile, LaunchProfile

MOST_LINES = 12
"""Most lines of a profile."""
_KERNELS, _EACH = 2, 5
"""Kernels that are described, and most lines of each."""
_LONG = 0.1
"""Share of the forward that a second kernel must take to be described."""
_REPEATED = 1.2
"""Bytes over the least ones above which a tensor is named."""
_NAME = 40
"""Characters of a name that a line shows."""
_TEXTS = {
    "coalesce": "let the lanes of a warp access consecutive elements of {subject}",
    "once": "move {subject} between memory and the kernel only once",
    "tensor_cores": "multiply on tensor cores",
    "tiles": "multiply tiles of twice as many rows and columns",
    "fill": "share the work evenly among more programs",
    "occupancy": "need less of what limits occupancy, so that an SM holds more programs",
    "spills": "keep fewer values at a time, so that no register is spilled",
    "in_flight": "request twice as many bytes before waiting for them (larger blocks, or more stages)",
    "integers": "do without integer arithmetic (offsets in 64 bits, divisions, comparisons)",
    "fuse": "do the work of {subject} in the same launch",
}
"""What to do, by the kind of a change."""


def result_lines(result: EvalResult) -> list[str]:
    """Return the profile of a result in at most `MOST_LINES` lines, or the reason why it has none in one."""
    if result.profile is None:
        return [f"no profile: {missing_profile(result)}"]
    return profile_lines(result.profile, measured_ms(result))


def missing_profile(result: EvalResult) -> str:
    """Return why a result has no profile."""
    if result.status is not EvalStatus.OK:
        return f"the program was not timed ({result.status.value})"
    if result.unpriced_ops:
        return f"nothing prices {', '.join(result.unpriced_ops)}"
    if result.true_size is not None and result.true_size.unknown:
        return result.true_size.unknown
    if result.timing_source is not None and not result.is_simulated:
        return "a GPU counts nothing; kernelgym.prefilter=cpu adds one"
    return "no kernel of the program was launched and counted"


def measured_ms(result: EvalResult) -> dict[str, float]:
    """Return the milliseconds of the forward (key "") and of its longest kernels; {} if they were not measured."""
    if result.is_simulated or result.kernel_ms is None:
        return {}
    return {**dict(result.top_kernels or ()), "": result.kernel_ms.median}


def profile_lines(profile: ForwardProfile, measured: Mapping[str, float]) -> list[str]:
    """Return at most `MOST_LINES` lines, the largest saving in the second.

    Args:
        profile: the profile.
        measured: the result of `measured_ms`.
    """
    described = [
        launch for index, launch in enumerate(profile.launches[:_KERNELS]) if not index or _is_long(launch, profile)
    ]
    lines = [_forward(profile, measured.get("")), _largest_saving(profile)]
    for launch in described:
        lines += [*_launch(launch, measured.get(launch.name))][:_EACH]
    return [f"predicted: {line}" for line in lines]


def change_text(change: Change) -> str:
    """Return what a change asks for."""
    where = "" if change.line is None else f" (line {change.line})"
    return f"in {_shortened(change.kernel)}, {_TEXTS[change.kind].format(subject=_shortened(change.subject))}{where}"


def micro(ms: float) -> str:
    """Return a time in microseconds."""
    return f"{1e3 * ms:.1f} us" if ms < 10 else f"{1e3 * ms:,.0f} us"


def size(count: float) -> str:
    """Return a number of bytes with a unit of three digits."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def share(part: float) -> str:
    """Return a share as a percentage, of two digits if it is small."""
    return f"{part:.0%}" if part >= 0.1 else f"{part:.1%}"


def _is_long(launch: LaunchProfile, profile: ForwardProfile) -> bool:
    return launch.count * launch.ms >= _LONG * profile.ms


def _forward(profile: ForwardProfile, measured: float | None) -> str:
    parts = [f"forward {_time(profile.ms, measured)} on {profile.gpu}"]
    if profile.roofline is not None:
        parts.append(f"{share(profile.roofline)} of the task's roofline")
    minimum = "" if profile.least_bytes is None else f" where the task needs {size(profile.least_bytes)}"
    parts.append(f"dram__bytes {size(profile.dram_bytes)}{minimum}")
    kernels_ms = sum(launch.count * launch.ms for launch in profile.launches)
    if kernels_ms < (1.0 - _LONG) * (profile.ms - profile.host_ms):
        parts.append(f"its own kernels take {micro(kernels_ms)} of it")
    if profile.host_ms > _LONG * profile.ms:
        parts.append(f"{micro(profile.host_ms)} wait for the host")
    return ", ".join(parts)


def _launch(launch: LaunchProfile, measured: float | None) -> Iterator[str]:
    times = f" x {launch.count}" if launch.count > 1 else ""
    grid = ", ".join(map(str, launch.grid[: max(1, sum(length > 1 for length in launch.grid))]))
    per_kernel = None if measured is None else measured / launch.count
    yield (
        f"{_shortened(launch.name)}[{grid}]{times}: {_time(launch.ms, per_kernel)}, bound by {launch.bound}, "
        f"{share(launch.roofline)} of its roofline; dram__bytes {size(launch.dram_bytes)}, "
        f"lts__t_bytes {size(launch.l2_bytes)}"
    )
    yield f"  {_occupancy(launch)}"
    if launch.no_tensor_cores is not None:
        yield f"  no tensor cores: {_shortened(launch.no_tensor_cores, 120)}"
    elif launch.product_flops:
        yield f"  tensor cores do {launch.product_flops / max(1, launch.flops):.0%} of its operations"
    for line in launch.wasted[:1]:
        where = "" if line.line is None else f"line {line.line}: "
        ratio = line.sectors / line.needed
        yield f"  {where}{line.access} of {_shortened(line.tensor)} takes {ratio:.1f} times its sectors"
    moved_again = [tensor for tensor in launch.tensors if tensor.read + tensor.written > _REPEATED * tensor.least]
    if moved_again:
        yield "  moved of it, and needed: " + ", ".join(
            f"{_shortened(tensor.name)} {size(tensor.read + tensor.written)}, {size(tensor.least)}"
            for tensor in moved_again[:3]
        )


def _occupancy(launch: LaunchProfile) -> str:
    parts = [
        f"SMs {launch.sms} of {launch.gpu_sms}",
        f"Waves Per SM {launch.waves:.2f}",
        f"places for warps taken {share(launch.occupancy)} of {launch.theoretical_occupancy:.0%}",
    ]
    if launch.limit is not None:
        parts[-1] += f" (limited by {launch.limit})"
    if launch.registers is not None:
        parts.append(f"{launch.registers} registers, {launch.spills or 0} B spilled, {size(launch.shared or 0)} shared")
    return ", ".join(parts)


def _largest_saving(profile: ForwardProfile) -> str:
    if not profile.changes:
        return "no single change of its counts saves 1 %"
    change = profile.changes[0]
    saved = 1.0 - change.ms / profile.ms
    return f"the largest saving: {change_text(change)}: {micro(profile.ms)} -> {micro(change.ms)} (-{saved:.0%})"


def _time(ms: float, measured: float | None) -> str:
    return micro(ms) if measured is None else f"{micro(ms)} (measured {micro(measured)})"


def _shortened(text: str, limit: int = _NAME) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
