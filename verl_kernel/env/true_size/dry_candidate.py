# SPDX-License-Identifier: Apache-2.0
"""Runs a candidate without data, in a separate runner: builds and calls it once at each of several sizes."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch

from verl_kernel.env.compilation.description import Unit
from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.devices.cpu.execution_link import Link, Range, described
from verl_kernel.env.devices.cpu.host_bytes import host_bytes
from verl_kernel.env.devices.cpu.launch_state import STATE
from verl_kernel.env.emulator.flow.origins import Kind
from verl_kernel.env.ipc.execution_messages import Fresh, Launched, LaunchRequest, RunLaunch
from verl_kernel.env.ipc.messages import DryReply, DrySize, Place
from verl_kernel.env.ipc.shared_memory import DTYPES, flatten, unflatten
from verl_kernel.env.ipc.tensor_facts import storages, tensor_facts
from verl_kernel.env.seeding import seed_everything
from verl_kernel.env.trace import dump_events
from verl_kernel.env.true_size.dataless import AddressSpace, is_dataless
from verl_kernel.env.true_size.dry_pass import without_data

Area = tuple[int, int, str]
"""Start, size and data type of an area, as in a launch request."""


class FollowedLink(Link):
    """The link from this process to the executing process, for launches on tensors that may have no data.

    Args:
        link: link for launches that have data.
        space: address space of tensors without data.
    """

    def __init__(self, link: Link, space: AddressSpace) -> None:
        self.channel, self.memory, self._space = link.channel, link.memory, space

    def run(
        self,
        unit: Unit,
        *,
        grid: tuple[int, ...],
        arguments: Mapping[str, Any],
        views: Mapping[Range, Range],
        is_tried: bool,
        kept_kinds: list[Kind] | None,
        tables: Sequence[Range] = (),
        fresh_areas: Callable[[Sequence[Range]], list[Fresh]] = lambda areas: [],
    ) -> tuple[Launched, list[Range]]:
        """Have a launch sampled; tensors that it writes are unknown afterwards.

        Raises:
            MemoryError: its tensors with data do not fit into the granted memory.
        """
        tensors = dict(zip(STATE.ranges, STATE.tensors, strict=True))
        areas = self._areas(tensors)
        numbers = {span: number for number, span in enumerate(areas)}
        values = {
            name: described(value, lambda tensor: _position(tensor, numbers)) for name, value in arguments.items()
        }
        request = LaunchRequest(
            unit=unit.to_json(),
            grid=[*grid],
            arguments=values,
            areas=list(areas.values()),
            is_tried=is_tried,
            kept=kept_kinds,
            pointers=[],
            fresh=[],
            views=[],
        )
        self.channel.send(RunLaunch(launch=request))
        reply = cast(Launched, self.channel.recv())
        # After an autotuner's trials the launch of its choice follows and writes the same tensors.
        if reply["work"] is not None and not is_tried:
            for number, *_ in reply["work"]["writes"]:
                self._space.taint(tensors[list(areas)[number]])
        return reply, list(areas)

    def _areas(self, tensors: Mapping[Range, torch.Tensor]) -> dict[Range, Area]:
        """Return the area of each tensor in the executing process; those with data are copied to shared memory."""
        areas: dict[Range, Area] = {}
        end = 0
        for (start, stop), tensor in tensors.items():
            if is_dataless(tensor):
                areas[start, stop] = (start, stop - start, str(tensor.dtype).removeprefix("torch."))
                continue
            # The copy has the tensor's alignment up to a page, on which a kernel's vector accesses depend.
            offset = end + mmap.PAGESIZE + (start - end) % mmap.PAGESIZE
            end = offset + stop - start
            if end + mmap.PAGESIZE > len(self.memory):
                raise MemoryError("the tensors of a launch are larger than the memory that is granted")
            host_bytes(self.memory.data_ptr() + offset, stop - start)[:] = host_bytes(start, stop - start)
            areas[start, stop] = (offset, stop - start, "")
        return areas


def follow_launches(space: AddressSpace) -> None:
    """Have all launches of this process sampled from now on; this cannot be undone.

    Args:
        space: address space of tensors without data.
    """
    assert STATE.link is not None  # the judge has connected it
    STATE.link, STATE.has_data = FollowedLink(STATE.link, space), False


def _position(tensor: torch.Tensor, numbers: Mapping[Range, int]) -> Any:
    """Return the number of a tensor's area, and the tensor's offset in it."""
    start = tensor.untyped_storage().data_ptr()
    return [numbers[start, start + tensor.untyped_storage().nbytes()], tensor.data_ptr() - start]


class DryCandidate:
    """Runs a candidate's class without data. It permanently changes what launches do in this process.

    Args:
        device: device of the candidate.
        seed: seed of the random places of tensors.
        tensor_with_data: returns the tensor that a specification with an offset describes.
    """

    def __init__(self, device: DeviceBackend, seed: int, tensor_with_data: Callable[[Place], torch.Tensor]) -> None:
        self._device, self._space, self._tensor_with_data = device, AddressSpace(seed), tensor_with_data
        follow_launches(self._space)

    @property
    def reasons(self) -> list[str]:
        """Reasons why the candidate could not be followed, if any."""
        return self._space.reasons

    def run(self, cls: Any, size: DrySize) -> DryReply:
        """Build the class and call it once."""
        with without_data(self._space), torch.no_grad():
            model = self._model(cls, size)
            inputs = self._tensors(size["specs"])
            args, kwargs = unflatten(size["inputs"], inputs)
            with self._device.record() as events:
                output = model(*args, **kwargs)
        tensors: list[torch.Tensor] = []
        tree, input_storages = flatten(output, tensors), storages(inputs)
        return {
            "output": tree,
            "tensors": [tensor_facts(tensor, input_storages) for tensor in tensors],
            "events": dump_events(events),
        }

    def _model(self, cls: Any, size: DrySize) -> Any:
        args, kwargs = unflatten(size["init"], self._tensors(size["init_specs"]))
        seed_everything(size["seed"])
        return self._device.place(cls(*args, **kwargs))

    def _tensors(self, specs: Sequence[Place]) -> list[torch.Tensor]:
        return [self._tensor(spec) for spec in specs]

    def _tensor(self, spec: Place) -> torch.Tensor:
        if spec["offset"] >= 0:
            return self._tensor_with_data(spec).clone()
        return self._space.tensor(spec["shape"], spec["stride"], DTYPES[spec["dtype"]])
