# SPDX-License-Identifier: Apache-2.0
import textwrap
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.reward.extract import extract_code, no_program

KERNEL = "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n"


def fenced(body: str, opening: str = "```python", closing: str = "```") -> str:
    return f"{opening}\n{body}{closing}\n"


def test_the_last_python_block_is_the_program():
    answer = "first\n```python\na = 1\n```\nbetter:\n```python\nb = 2\n```\ndone"
    assert extract_code(answer) == "b = 2\n"


def test_an_unlabelled_block_counts():
    assert extract_code("```\na = 1\n```") == "a = 1\n"
    assert extract_code("```python\na = 1\n```\n```bash\nls\n```") == "a = 1\n"
    assert extract_code("```bash\nls\n```") is None
    assert extract_code("```jsx\na = 1\n```") is None


@pytest.mark.parametrize("label", ["python", "Python", "py", "python3", "PY", "triton", "python3.11", "{.python}"])
def test_every_way_to_say_python_is_a_label(label):
    assert extract_code(fenced("a = 1\n", f"```{label}") + fenced("42\n", "```")) == "a = 1\n"


def test_an_unclosed_or_empty_block_is_no_program():
    assert extract_code("```python\na = 1\n") is None
    assert extract_code("```python\n\n```") is None
    assert extract_code("no code at all") is None
    assert extract_code("") is None


def test_a_block_that_defines_the_class_wins_over_later_ones():
    later = [fenced("1.0\n", "```"), fenced("model = ModelNew()\n"), fenced("pip list\n", "```bash")]
    for other in [*later, "".join(later)]:
        assert extract_code(f"Mine:\n{fenced(KERNEL)}Output:\n{other}") == KERNEL
    assert extract_code(fenced(KERNEL) + fenced(KERNEL.replace("return x", "return -x"))) != KERNEL


def test_the_class_is_that_of_the_task():
    mine, other = KERNEL.replace("ModelNew", "BlockNew"), KERNEL.replace("ModelNew", "BlockNewer")
    assert extract_code(fenced(mine) + fenced(KERNEL) + fenced(other), "BlockNew") == mine
    assert extract_code(fenced(mine) + fenced("b = 2\n"), "Block") == "b = 2\n"


def test_fences_in_earlier_strings_do_not_end_a_block():
    assert extract_code("```python\ns = 'x ``` y'\n```") == "s = 'x ``` y'\n"


def test_an_example_in_a_docstring_belongs_to_the_program():
    program = 'class ModelNew:\n    """Use it so:\n\n    ```python\n    ModelNew()\n    ```\n    """\n'
    assert extract_code(fenced(program)) == program


def test_longer_fences_hold_shorter_ones():
    program = 's = """\n```\n"""\n'
    assert extract_code(fenced(program, "````python", "````")) == program
    assert extract_code(fenced(fenced(KERNEL), "````markdown", "````")) == KERNEL


def test_only_a_fence_of_the_same_kind_closes_a_block():
    assert extract_code(fenced("a = 1\n~~~\n")) == "a = 1\n~~~\n"
    assert extract_code(fenced("a = 1\n```\n", "~~~python", "~~~")) == "a = 1\n```\n"


def test_a_closing_fence_may_be_indented():
    assert extract_code(fenced(KERNEL, closing="      ```")) == KERNEL


def test_an_opening_fence_holds_no_backtick():
    assert extract_code("```python x = 1```\n") is None
    assert extract_code(f"``` uses `tl.load`\n{fenced(KERNEL, '```')}") == KERNEL


def test_code_within_a_line_is_no_fence():
    program = 's = """\n```x```\n"""\n'
    assert extract_code(fenced(program)) == program


FENCES = st.builds(str.__mul__, st.sampled_from("`~"), st.integers(3, 6))
WORDS = st.sampled_from(["", " done", " that is `it`", " Output follows", " Python it is", "end"])
PROSE = st.text(st.characters(blacklist_characters="`~\r<", blacklist_categories=("Cs",)), max_size=80)
SKETCHES = st.sampled_from(
    ["```python\nsketch", "```\nsketch", "~~~python\na = 1", "````py\nb\n```\nc", "```python\nx\n```"]
)


@given(PROSE, FENCES, st.sampled_from(["python", " python", "py kernel", "", "text"]), WORDS, PROSE)
def test_the_program_is_found_however_it_is_fenced(before, fence, label, words, after):
    answer = f"{before}\n{fence}{label}\n{KERNEL}{fence}{words}\n{after}"
    assert extract_code(answer) == extract_code(answer.replace("\n", "\r\n")) == KERNEL


@given(st.lists(SKETCHES, max_size=4), st.sampled_from(["<think>\n", ""]), st.sampled_from(["", "python", "triton"]))
def test_no_sketch_in_the_thinking_hides_or_swallows_the_answer(sketches, opening, label):
    thinking = "\n".join(sketches)
    assert extract_code(f"{opening}{thinking}\n</think>\nMine:\n{fenced(KERNEL, f'```{label}')}") == KERNEL
    assert extract_code(f"{opening}{thinking}\n</think>\nI give up.") is None


@given(st.lists(SKETCHES, max_size=4))
def test_a_labelled_answer_survives_open_fences(sketches):
    assert extract_code("\n".join([*sketches, fenced(KERNEL)])) == KERNEL


def test_thinking_without_an_end_holds_no_answer():
    assert extract_code(f"<think>\n{fenced(KERNEL)}so") is None
    assert extract_code(f"{fenced(KERNEL)}<think>\nbetter: {fenced('a = 1')}") == KERNEL


def test_a_tag_inside_the_program_is_text():
    program = KERNEL.replace("return x", "return x  # <think> and </think>")
    assert extract_code(f"<think>\nhm\n</think>\n{fenced(program)}") == program


@given(st.sampled_from(["", "- ", "* ", "2. ", "10) "]), st.sampled_from(["  ", "    ", "\t"]), FENCES)
def test_a_block_in_a_list_loses_the_lists_indent(marker, indent, fence):
    body = textwrap.indent(KERNEL, indent)
    opening = f"{marker}{fence}" if marker else f"{indent}{fence}"
    assert extract_code(f"Steps:\n{opening}python\n{body}{indent}{fence}\n") == KERNEL


@given(st.text(max_size=300) | st.text("`~\n python<think/>", max_size=300))
def test_any_text_gives_a_program_of_its_own_lines_or_none(answer: str):
    code = extract_code(answer)
    if code is not None:
        lines = {line.strip() for line in answer.split("\n")}
        assert code.strip()
        assert {line.strip() for line in code.split("\n")} <= lines | {""}


@pytest.mark.parametrize("unit", ["```\n", "```x\n", "        ```\n```\n~~~\n", "<think>\n", "</think>", " \n", "\t"])
def test_a_long_answer_of_fences_does_not_hold_the_loop_up(unit):
    started = time.process_time()
    extract_code(unit * 16000)
    # A walk that is quadratic takes ten times as long as this, one that is linear a tenth of it.
    assert time.process_time() - started < 4


def test_a_missing_program_is_a_verdict_on_the_answer():
    reference = "class Model: pass\ndef get_inputs(): return []\ndef get_init_inputs(): return []"
    result = no_program(Task(reference=reference, task_id="t"))
    assert (result.task_id, result.status) == ("t", EvalStatus.REJECTED_STATIC)
    assert result.task_hash == Task(reference=f"{reference}# a comment\n").text_hash
    assert result.error is not None
    assert "no closed ```python block" in result.error.message
    assert not result.rewarded
    assert result.compiled is False
