# SPDX-License-Identifier: Apache-2.0
"""verl's ToolAgentLoop calls the tools: its registry loads them, its own method calls them, its parser reads calls."""

import asyncio
from types import SimpleNamespace

import pytest

from verl_kernel.data.rows import make_row, with_tools
from verl_kernel.env.conformance.programs import HONEST, REFERENCE
from verl_kernel.errors import ConfigError
from verl_kernel.generated_tasks.conversations import TOOLS, TOOLS_FILE, call_text

WRONG = HONEST.replace(") + tl.load", ") - tl.load")
BROKEN = HONEST.replace("tl.load", "tl.laod")
ROW = with_tools(make_row([], REFERENCE, data_source="d", task_id="t", split="train", index=0), TOOLS)


@pytest.fixture(scope="module")
def loop():
    from verl.tools.tool_registry import load_all_tools

    tools = {tool.name: tool for tool in load_all_tools(str(TOOLS_FILE), None)}
    return SimpleNamespace(tools=tools, max_tool_response_length=600, tool_response_truncate_side="left")


def called(loop, tool, *answers):
    """What the tool says after the policy's answers."""
    from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop

    messages = [{"role": "user", "content": "```python\nclass ModelNew: pass\n```"}]
    messages += [{"role": "assistant", "content": answer} for answer in answers]
    call, agent = SimpleNamespace(name=tool, arguments="{}"), SimpleNamespace(messages=messages)
    said, reward, _ = asyncio.run(ToolAgentLoop._call_tool(loop, call, ROW["extra_info"]["tools_kwargs"], agent))
    assert reward == 0
    return said.text


def fenced(source):
    return f"It does it.\n```python\n{source}```\n"


@pytest.mark.parametrize(("tool", "source", "words"), [
    ("run", HONEST, "On public inputs, which are not those of a submission:\nVerdict: ok"),
    ("run", WRONG, "Verdict: incorrect"), ("check", HONEST, "It is accepted, compiles and runs."),
    ("check", WRONG, "It is accepted, compiles and runs."), ("check", BROKEN, "Verdict: "),
])  # fmt: skip
@pytest.mark.processes
@pytest.mark.slow
def test_a_tool_tries_the_program(loop, tool, source, words):
    assert words in called(loop, tool, fenced(source))


@pytest.mark.processes
@pytest.mark.slow
def test_the_last_program_is_tried(loop):
    assert "Verdict: ok" in called(loop, "run", fenced(WRONG), fenced(HONEST), "It needs no change.")


@pytest.mark.processes
@pytest.mark.slow
def test_without_a_program_there_is_a_sentence(loop):
    assert called(loop, "run", "no program") == "There is no ```python block that defines ModelNew."


@pytest.mark.parametrize("tool", TOOLS)
def test_verls_parser_reads_a_taught_call(tool):
    from verl.experimental.agent_loop.tool_parser import ToolParser

    text = f"{fenced(HONEST)}{call_text(tool)}<|im_end|>"
    parser = ToolParser.get_tool_parser("hermes", SimpleNamespace(decode=lambda ids: text))
    content, (call,) = asyncio.run(parser.extract_tool_calls([1]))
    assert (call.name, call.arguments) == (tool, "{}")
    assert content == text.replace(call_text(tool), "")


def test_a_row_names_the_loop_and_its_tools():
    assert ROW["agent_name"] == "tool_agent"
    assert list(ROW["extra_info"]["tools_kwargs"]) == list(TOOLS)


def made(config, name):
    from verl.tools.schemas import OpenAIFunctionToolSchema

    from verl_kernel.rollout.tools import KernelTool

    return KernelTool(config, OpenAIFunctionToolSchema(type="function", function={"name": name, "description": ""}))


def test_an_unknown_tool_is_refused():
    with pytest.raises(ConfigError, match="there is no tool 'submit': the tools are check, run, profile"):
        made({"type": "native"}, "submit")


def test_a_bad_option_is_refused():
    with pytest.raises(ConfigError, match="devise is not an option; did you mean device?"):
        made({"type": "native", "devise": "cpu"}, "run")
