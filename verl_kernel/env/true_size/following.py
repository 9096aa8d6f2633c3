# SPDX-License-Identifier: Apache-2.0
"""Makes what follows a candidate without data: its kernels interpreted, or sampled in the executing process."""

from __future__ import annotations

from collections.abc import Callable

import torch

from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.ipc.messages import Place
from verl_kernel.env.true_size.dataless import AddressSpace
from verl_kernel.env.true_size.dry_candidate import DryCandidate


def follower(device: DeviceBackend, seed: int, known: Callable[[Place], torch.Tensor]) -> DryCandidate:
    """What follows a candidate in this process.

    Args:
        device: where it runs.
        seed: what places of tensors, and programs and turns that are interpreted, are drawn from.
        known: finds the tensor of a place that has data.
    """
    space = AddressSpace(seed)
    if device.compiled:
        from verl_kernel.env.true_size.native.link import FollowedLaunches

        return DryCandidate(device, space, FollowedLaunches(space), known)
    from verl_kernel.env.true_size.kernels.dry_launch import DryLaunches  # changes the interpreter

    return DryCandidate(device, space, DryLaunches(space, seed), known)
