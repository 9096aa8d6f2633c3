# SPDX-License-Identifier: Apache-2.0
"""One launch without data: some programs of its grid, each counted for those it stands for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

import numpy as np
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime import interpreter
from triton.runtime.interpreter import GridExecutor, interpreter_builder

from verl_kernel.env.devices.cpu import launches
from verl_kernel.env.devices.cpu.counting import OutOfBounds
from verl_kernel.env.devices.cpu.stores import KINDS, STORES
from verl_kernel.env.true_size import opcodes
from verl_kernel.env.true_size.dataless import AddressSpace
from verl_kernel.env.true_size.kernels import samples, unknowns
from verl_kernel.env.true_size.kernels.loops import Loops
from verl_kernel.env.true_size.kernels.memory import DryMemory
from verl_kernel.env.true_size.kernels.meter import Meter

_TRACED = 6
"""Programs of a launch whose instructions are watched."""
_WORK = 6000
"""Ops of the interpreter that the programs of one launch may take where more of them make counts more accurate."""
_LANES = 1 << 14
"""An op on so many lanes takes about as long as two on a few."""


class DryLaunches:
    """The launches of this process.

    Args:
        space: of tensors without data.
        seed: what programs and turns are drawn from.
    """

    def __init__(self, space: AddressSpace, seed: int) -> None:
        self._space, self._random = space, Random(seed)
        self._loops = Loops(self._random)
        self._memory = DryMemory(space, self._loops)
        self.tracer = opcodes.Tracer("")
        """What watches the instructions of the forward, if anything does."""
        self.coverage: list[dict[str, float]] = []
        """For each launch of the forward, the share of each parameter's tensor that it stored to."""

    def install(self) -> None:
        """Change the interpreter of this process for good, before it reads a kernel."""
        self._loops.install()
        unknowns.install(self._space, self._count)
        self._memory.install()
        dry = self

        def launch(executor: Any, *args: Any, **kwargs: Any) -> None:
            dry._launch(executor, args, kwargs)

        GridExecutor.__call__ = launches.launching(launch)

    def _count(self, lanes: int) -> None:
        self._loops.meter.calls += 1 + lanes // _LANES

    def _launch(self, executor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        known = inspect.signature(executor.fn).parameters
        bound = inspect.getcallargs(
            executor.fn, *args, **{name: value for name, value in kwargs.items() if name in known}
        )
        STORES.stored = STORES.computed = None
        if 0 in executor.grid:
            return
        self._loops.meter = Meter()
        self._memory.begin(bound)
        with _prepared(executor.fn), np.errstate(all="ignore"), self.tracer.paused(STORES.is_paused):
            self._run(executor, bound)
        self._loops.meter.finish()
        if not STORES.is_paused:
            self.coverage.append(self._memory.coverage())

    def _run(self, executor: Any, bound: dict[str, Any]) -> None:
        given = {
            name: value if name in executor.constexprs else interpreter._implicit_cvt(value)
            for name, value in bound.items()
        }
        interpreter_builder.set_grid_dim(*executor.grid)
        run = partial(self._program, executor, given)
        places = samples.programs(executor.grid, self._random, self._between(executor.grid, run))
        next(places)  # the first program, which has been run
        for number, (index, weight) in enumerate(places):
            with self._loops.meter.standing_for(weight), self.tracer.paused(number >= _TRACED):
                run(index)

    def _between(self, grid: tuple[int, ...], run: Callable[[tuple[int, ...]], None]) -> int:
        """Run the first program; how many others between the edges are worth their time."""
        run((0,) * len(grid))
        if STORES.is_paused:
            return samples.FEW
        return min(samples.MOST, max(samples.FEWEST, _WORK // max(1, self._loops.meter.calls)))

    def _program(self, executor: Any, given: dict[str, Any], index: tuple[int, ...]) -> None:
        interpreter_builder.set_grid_idx(*index)
        try:
            executor.fn(**given)
        except OutOfBounds as exc:
            hint = _WRAPPED if self._memory.largest > _NARROW else ""
            raise self._space.refuse(f"program {index} of kernel {executor.fn.__name__}: {exc}{hint}") from exc
        except AssertionError as exc:
            if STORES.is_paused:  # an autotuner tries configurations: `static_assert` rules this one out
                raise CompileTimeAssertionFailure(None, None, str(exc)) from exc
            raise


_WRAPPED = "; a tensor of this size has offsets that overflow 32 bits: compute them in tl.int64"
_NARROW = 1 << 31
"""Bytes from which on that is so."""


@contextmanager
def _prepared(fn: Any) -> Iterator[None]:
    """Triton's language as a launch has it, and no questions about what stores are."""
    scope, outer = interpreter._patch_lang(fn), STORES.kept
    STORES.kept = KINDS
    try:
        yield
    finally:
        STORES.kept = outer
        scope.restore()
