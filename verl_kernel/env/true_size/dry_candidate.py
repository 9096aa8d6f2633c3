# SPDX-License-Identifier: Apache-2.0
"""A candidate without data, in a runner of its own: built and called once at each of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.ipc.messages import DryReply, DrySize, Place
from verl_kernel.env.ipc.shared_memory import DTYPES, flatten, unflatten
from verl_kernel.env.ipc.tensor_facts import storages, tensor_facts
from verl_kernel.env.seeding import seed_everything
from verl_kernel.env.trace import dump_events
from verl_kernel.env.true_size.dataless import AddressSpace
from verl_kernel.env.true_size.dry_pass import without_data
from verl_kernel.env.true_size.followed_link import follow_launches


class DryCandidate:
    """Runs a candidate's class without data. Changes what launches do in this process, for good.

    Args:
        device: where it runs.
        seed: what places of tensors are drawn from.
        known: finds the tensor of a place that has data.
    """

    def __init__(self, device: DeviceBackend, seed: int, known: Callable[[Place], torch.Tensor]) -> None:
        self._device, self._space, self._known = device, AddressSpace(seed), known
        follow_launches(self._space)

    @property
    def reasons(self) -> list[str]:
        """Why it could not be followed, if so."""
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
        tree, given = flatten(output, tensors), storages(inputs)
        return {
            "output": tree,
            "tensors": [tensor_facts(tensor, given) for tensor in tensors],
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
            return self._known(spec).clone()
        return self._space.tensor(spec["shape"], spec["stride"], DTYPES[spec["dtype"]])
