# SPDX-License-Identifier: Apache-2.0
"""Pins what the tools of `rollout.tools` lean on in verl; tests/rollout/test_tools.py calls them as its loop does."""

from __future__ import annotations

import ast

from tests.compat.pins import parameters, source_of


def test_a_tool_has_the_methods_that_ours_replaces() -> None:
    from verl.tools.base_tool import BaseTool

    assert parameters(BaseTool.__init__)[1:] == ["config", "tool_schema"]
    assert parameters(BaseTool.create)[1:] == ["instance_id", "kwargs"]
    assert parameters(BaseTool.execute)[1:] == ["instance_id", "parameters", "kwargs"]
    assert parameters(BaseTool.release)[1:] == ["instance_id", "kwargs"]


def test_a_row_gives_a_tool_its_task() -> None:
    read = ast.unparse(source_of("utils/dataset/rl_dataset.py", "RLHFDataset"))
    assert "row_dict.get('extra_info', {}).get('tools_kwargs', {})" in read


def test_the_loop_hands_the_task_and_the_conversation_to_a_tool() -> None:
    call = ast.unparse(source_of("experimental/agent_loop/tool_agent_loop.py", "ToolAgentLoop"))
    assert "tool.create(create_kwargs=kwargs.get('create_kwargs', {}))" in call
    assert "tool.execute(instance_id, tool_args, agent_data=agent_data)" in call
