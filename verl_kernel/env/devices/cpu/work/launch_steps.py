# SPDX-License-Identifier: Apache-2.0
"""A launch as the machine model sees it: its loads and arithmetic, then, where it multiplies, what it stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, prod

from verl_kernel.env.devices.cpu.work.traffic import Traffic, Use
from verl_kernel.env.machine.constants import constant
from verl_kernel.env.trace import Step

_WARPS = (1, 2, 4, 8, 16, 32)
_DEFAULT_WARPS = 4
_ROUNDING = 1e-6


@dataclass
class Products:
    """Products of one kind that a launch did."""

    counted: float = 0.0
    """Operations that the kernel's text asks for."""
    flops: float = 0.0
    """The same, with the repetitions that a higher precision needs."""
    operands: float = 0.0
    """Operations over the products for each operand of their tile."""

    @property
    def intensity(self) -> int:
        """Products for each operand of a typical tile."""
        return max(1, round(self.flops / self.operands)) if self.operands else 0


def warps_of(value: object) -> int:
    """Warps of a program that a launch asks for; Triton's default where it asks for none, or for what cannot be."""
    return value if type(value) is int and value in _WARPS else _DEFAULT_WARPS


def launch_steps(
    traffic: Traffic, grid: tuple[int, ...], flops: int, products: Mapping[str, Products], warps: int
) -> tuple[Step, ...]:
    """The steps of a launch that has ended.

    Args:
        traffic: what its programs moved.
        grid: its sizes.
        flops: operations, those of products included.
        products: by unit.
        warps: of a program.
    """
    blocks = _even_blocks(traffic, prod(grid), flops)
    vector = max(0, flops - round(sum(kind.counted for kind in products.values())))
    reads, writes = list(traffic.reads.values()), list(traffic.writes.values())
    base = Step(
        instructions=vector, blocks=blocks, warps=warps,
        in_flight=traffic.load_bytes if products else traffic.in_flight,
        block_ns=int(constant("program_ns")),
    )  # fmt: skip
    if not products:
        return (_moving(base, [*reads, *writes], round(traffic.spilled)),)
    kinds = sorted(products.items(), key=lambda item: -item[1].flops)
    (unit, most), *others = kinds
    main = replace(
        _moving(base, reads, round(traffic.spilled)), flops=round(most.flops), unit=unit, intensity=most.intensity
    )
    rest = [
        Step(flops=round(kind.flops), unit=name, intensity=kind.intensity, blocks=blocks, warps=warps, kernels=0)
        for name, kind in others
    ]
    return (main, *rest, _moving(Step(blocks=blocks, warps=warps, kernels=0), writes, 0))


def _even_blocks(traffic: Traffic, programs: int, flops: int) -> int:
    """How many programs as heavy as the heaviest one do the launch's work."""
    shares = [
        ceil(total / heaviest - _ROUNDING)
        for total, heaviest in ((traffic.total, traffic.heaviest_bytes), (flops, traffic.heaviest_flops))
        if heaviest
    ]
    return max(1, min([programs, *shares]))


def _moving(step: Step, uses: list[Use], spilled: int) -> Step:
    own, shared = ([use for use in uses if use.is_shared is kind] for kind in (False, True))
    return replace(
        step,
        bytes=sum(use.once for use in uses) + spilled,
        l2_bytes=round(sum(use.total for use in uses)) + spilled,
        repeated_bytes=sum(use.repeated for use in uses),
        private_bytes=sum(use.once for use in own) // step.blocks,
        shared_bytes=sum(use.extent for use in shared),
    )
