# SPDX-License-Identifier: Apache-2.0
"""Tools of verl's ToolAgentLoop: they try a program on public inputs before the answer without a call is judged.

`actor_rollout_ref.rollout.multi_turn.tool_config_path` names a file of them, such as
`verl_kernel/generated_tasks/tools.yaml`; rows are those of `data.rows.with_tools`. A call needs no argument: the
program is the policy's last one.
"""

from __future__ import annotations

import atexit
from functools import cache
from typing import Any
from uuid import uuid4

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse

from verl_kernel.env import GymOptions, LocalPool, Task
from verl_kernel.errors import ConfigError
from verl_kernel.reward.extract import extract_code
from verl_kernel.reward.options import parse_options
from verl_kernel.rollout.tool_replies import PUBLIC_SEED, TRIALS, public_options, tried_text


class KernelTool(BaseTool):  # type: ignore[misc]
    """The tool `check`, `run` or `profile`, by the name in its schema.

    Args:
        config: the keys of a recipe's `kernelgym` by which programs are tried, and `type`, which verl reads.
            `feedback_chars` is the longest verdict; verl cuts what exceeds `multi_turn.max_tool_response_length`.
        tool_schema: name, description and parameters, as the policy sees them.

    Raises:
        ConfigError: there is no tool of this name, or an option is out of its range.
        EnvironmentNotReady: no judge can start here.
    """

    def __init__(self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema) -> None:
        super().__init__(config, tool_schema)
        if self.name not in TRIALS:
            raise ConfigError(f"there is no tool {self.name!r}: the tools are {', '.join(TRIALS)}")
        options = parse_options({key: value for key, value in config.items() if key != "type"})
        self._chars, self._tasks = options.rollout.feedback_chars, dict[str, Task]()
        self._judges = _opened(public_options(options.env))

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        """Take the task of a trajectory, from the row's `tools_kwargs`."""
        name = instance_id or str(uuid4())
        self._tasks[name] = Task(**kwargs["create_kwargs"])
        return name, ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float, dict[str, Any]]:
        """Try the last program of the trajectory; a tool gives no reward."""
        task = self._tasks[instance_id]
        written = "\n\n".join(
            str(message["content"]) for message in kwargs["agent_data"].messages if message["role"] == "assistant"
        )
        code = extract_code(written, task.candidate_class)
        if code is None:
            return ToolResponse(text=f"There is no ```python block that defines {task.candidate_class}."), 0.0, {}
        result = await self._judges.evaluate(task, code)
        return ToolResponse(text=tried_text(self.name, result, self._chars, task.candidate_class)), 0.0, {}

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """Forget the task of a call."""
        self._tasks.pop(instance_id, None)


@cache
def _opened(options: GymOptions) -> LocalPool:
    """Return the judges of this process that draw from a seed that everybody may know; they end with it."""
    pool = LocalPool(options, PUBLIC_SEED)
    atexit.register(pool.close)
    return pool
