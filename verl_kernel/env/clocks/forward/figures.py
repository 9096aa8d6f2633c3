# SPDX-License-Identifier: Apache-2.0
"""Computes the figures of one launch for a profile."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from verl_kernel.env.clocks.forward.bounds import Filling, bound_of, traffic
from verl_kernel.env.clocks.forward.launches import Flow, OwnLaunch
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import Turn, fitting
from verl_kernel.env.machine.roofline import Demand, flop_rates
from verl_kernel.env.parse import parse_once
from verl_kernel.env.result import LONGEST_NAME, CompiledKernel, LaunchProfile, TensorTraffic, WastedSectors

_MATERIAL = 0.05
"""Share of a launch's sectors below which wasted ones are not listed."""
_MOST = 8
"""Most tensors, and most lines, of a launch that are listed."""
_DOTS = {"dot", "dot_scaled"}
_PART = 0.25
"""Share of the task's products that a launch computes if it is about them."""


@dataclass(frozen=True)
class Setting:
    """What a profile needs to know beside the trace."""

    machine: MachineModel
    demand: Demand | None
    """Least work of the task; None if sizes change."""
    text: str
    """The candidate's text."""
    blocks_per_sm: Mapping[str, int] = field(default_factory=dict)
    """By kernel, blocks that an SM holds."""
    compiled: Mapping[str, CompiledKernel] = field(default_factory=dict)
    """Compiled kernels by the variant of their launches; empty if nothing was compiled."""

    def resources(self, launch: OwnLaunch) -> CompiledKernel | None:
        """Return a launch's compiled kernel; at another size than that of the trials, the one of that name."""
        named = (kernel for kernel in self.compiled.values() if kernel.name == launch.event.name)
        return self.compiled.get(launch.event.variant) or next(named, None)


def launch_profile(launch: OwnLaunch, count: int, turn: Turn, flow: Flow, setting: Setting) -> LaunchProfile:
    """Describe a launch.

    Args:
        launch: the launch.
        count: how many launches like it the forward has.
        turn: when the device runs it.
        flow: which events use its tensors.
        setting: what else is known.
    """
    event, machine = launch.event, setting.machine
    fitting_blocks, used = fitting(event, setting.blocks_per_sm), setting.resources(launch)
    moved, l2_bytes = traffic(event, machine, fitting_blocks)
    filling, tensors, ms = Filling.of(event, machine, fitting_blocks), tensor_traffic(launch, flow), turn.ms
    return LaunchProfile(
        name=event.name[:LONGEST_NAME],
        grid=event.grid,
        count=count,
        ms=ms,
        bound=bound_of(event, machine, fitting_blocks, turn),
        roofline=_roofline(launch, min(moved, sum(tensor.least for tensor in tensors)), ms, machine),
        dram_bytes=moved,
        l2_bytes=l2_bytes,
        **vars(filling),
        gpu_sms=machine.gpu.sms,
        limit=None if used is None else used.limit,
        registers=None if used is None else used.registers,
        spills=None if used is None else used.spills,
        shared=None if used is None else used.shared,
        flops=event.flops,
        product_flops=launch.products,
        no_tensor_cores=no_tensor_cores(launch, setting),
        tensors=tensors[:_MOST],
        wasted=wasted_sectors(launch)[:_MOST],
    )


def tensor_traffic(launch: OwnLaunch, flow: Flow) -> tuple[TensorTraffic, ...]:
    """Return what a launch moves of each tensor, the largest traffic first."""
    requested = {(area, is_store): 0 for area in launch.areas for is_store in (False, True)}
    for line in launch.explained["lines"]:
        for is_store in {"load": (False,), "store": (True,), "atomic": (False, True)}[line["kind"]]:
            if (line["area"], is_store) in requested:
                requested[line["area"], is_store] += line["asked"]
    traffic = []
    for area, name in launch.areas.items():
        size, once_read, read, once_written, written = launch.tally["areas"][name.partition("/")[0]]
        needed = min(size, once_read, requested[area, False]) + min(size, once_written, requested[area, True])
        if read or written:
            role = flow.role(launch.index, launch.numbers.get(area))
            traffic.append(TensorTraffic(name=name[:LONGEST_NAME], role=role, read=read, written=written, least=needed))
    return tuple(sorted(traffic, key=lambda tensor: -tensor.read - tensor.written))


def wasted_sectors(launch: OwnLaunch) -> tuple[WastedSectors, ...]:
    """Return the lines that take many more sectors than they need, the most wasteful first."""
    lines, areas = launch.explained["lines"], launch.areas
    material = _MATERIAL * sum(line["sectors"] for line in lines)
    wasted = [
        WastedSectors(
            line=line["line"],
            access=line["kind"],
            tensor=areas.get(line["area"], "")[:LONGEST_NAME],
            sectors=line["sectors"],
            needed=line["needed"],
        )
        for line in lines
        if line["sectors"] - line["needed"] > material
    ]
    return tuple(sorted(wasted, key=lambda line_waste: line_waste.needed - line_waste.sectors))


def _roofline(launch: OwnLaunch, needed: int, ms: float, machine: MachineModel) -> float:
    """Return the share of a launch's time that its least bytes and its operations take at the GPU's peaks."""
    gpu, operations = machine.gpu, launch.tally["operations"]
    single, _ = flop_rates(gpu, machine.matmul_tf32)
    moved_s = needed / (gpu.bandwidth_gbs * 1e9)
    plain = launch.event.flops - launch.products
    products_s = operations["half"] / (gpu.half_tflops * 1e12) + operations["tf32"] / max(
        single, gpu.tf32_tflops * 1e12
    )
    return min(1.0, max(moved_s, products_s + plain / (gpu.tflops * 1e12)) / (ms * 1e-3)) if ms else 0.0


def no_tensor_cores(launch: OwnLaunch, setting: Setting) -> str | None:
    """Return why a launch multiplies without tensor cores; None if it uses them, or the task has no products."""
    demand, plain = setting.demand, launch.explained["multiplied"][0]
    products = 0 if demand is None else demand.flops + demand.half_flops
    if not products or plain < _PART * products or launch.products > plain:
        return None
    if "*fp64" in factor_types(launch):
        return "its factors are float64"
    if not has_dot(setting.text, launch.event.name):
        return "it has no tl.dot: it multiplies elements and sums them"
    precision = "tf32" if setting.machine.matmul_tf32 else "tf32x3"
    return f'its tl.dot of float32 has input_precision "ieee"; "{precision}" runs on tensor cores'


def factor_types(launch: OwnLaunch) -> set[str]:
    """Return the types of the tensors that a launch reads, as Triton names them (`*fp32`)."""
    read = [name for name, (_, once, *_) in launch.tally["areas"].items() if once]
    return {kind for name in read if (kind := launch.tally["types"].get(name, "")).startswith("*")}


def has_dot(text: str, kernel: str) -> bool:
    """Return whether a kernel, or a function of its file that it calls, calls `tl.dot` or `tl.dot_scaled`."""
    tree = parse_once(text)
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    visited, waiting = set[str](), {kernel}
    while waiting and not visited & _DOTS:
        called = {name for helper in waiting & functions.keys() for name in _called(functions[helper])}
        visited, waiting = visited | waiting | called & _DOTS, called - visited - waiting
    return bool(visited & _DOTS)


def _called(function: ast.FunctionDef) -> set[str]:
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}
