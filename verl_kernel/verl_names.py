# SPDX-License-Identifier: Apache-2.0
"""Names of verl that differ between releases, which no other module looks up, and our names in its registries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from verl_kernel.errors import RegistrationError

REWARD_MANAGER, AGENT_LOOP = "kernelgym", "kernel_agent"
_APPEND_MESSAGES = ("ct_merge_context_msg", "ct_merge_non_assistant_msg")


def append_messages(loop: Any) -> Callable[..., Any]:
    """Return the method by which an agent loop appends messages to a conversation's tokens.

    Args:
        loop: an `AgentLoopBase` of verl, or the class.

    Raises:
        RegistrationError: verl has a method under none of the known names.
    """
    for name in _APPEND_MESSAGES:
        if hasattr(loop, name):
            method: Callable[..., Any] = getattr(loop, name)
            return method
    raise RegistrationError(
        f"verl's AgentLoopBase has no {' or '.join(_APPEND_MESSAGES)}, so no turn could follow the first: install the "
        "verl that verl-kernel asks for (>=0.9.1,<0.10)"
    )
