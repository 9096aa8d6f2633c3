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


DOCSTRING = 'class ModelNew:\n    """Use it so:\n\n    ```python\n    ModelNew()\n    ```\n    """\n'
IN_A_STRING, WITHIN_A_LINE = 's = """\n```\n"""\n', 's = """\n```x```\n"""\n'
WITH_TAGS = KERNEL.replace("return x", "return x  # <think> and </think>")
LATER = [fenced("1.0\n", "```"), fenced("model = ModelNew()\n"), fenced("pip list\n", "```bash")]
LABELS = ["python", "Python", "py", "python3", "PY", "triton", "python3.11", "{.python}"]


@pytest.mark.parametrize(("answer", "program"), [
    # The last block of Python, or without a label, that is closed and not empty.
    ("first\n```python\na = 1\n```\nbetter:\n```python\nb = 2\n```\ndone", "b = 2\n"), ("```\na = 1\n```", "a = 1\n"),
    ("```python\na = 1\n```\n```bash\nls\n```", "a = 1\n"), ("```bash\nls\n```", None), ("```jsx\na = 1\n```", None),
    ("```python\na = 1\n", None), ("```python\n\n```", None), ("no code at all", None), ("", None),
    # Every way to say Python is a label.
    *[(fenced("a = 1\n", f"```{label}") + fenced("42\n", "```"), "a = 1\n") for label in LABELS],
    # A block that defines the class wins over later ones.
    *[(f"Mine:\n{fenced(KERNEL)}Output:\n{other}", KERNEL) for other in [*LATER, "".join(LATER)]],
    (fenced(KERNEL.replace("return x", "return -x")) + fenced(KERNEL), KERNEL),
    # What is no fence, or not the one that closes the block.
    ("```python\ns = 'x ``` y'\n```", "s = 'x ``` y'\n"), (fenced(DOCSTRING), DOCSTRING),
    (fenced(WITHIN_A_LINE), WITHIN_A_LINE), (fenced(IN_A_STRING, "````python", "````"), IN_A_STRING),
    (fenced(fenced(KERNEL), "````markdown", "````"), KERNEL), (fenced("a = 1\n~~~\n"), "a = 1\n~~~\n"),
    (fenced("a = 1\n```\n", "~~~python", "~~~"), "a = 1\n```\n"), (fenced(KERNEL, closing="      ```"), KERNEL),
    ("```python x = 1```\n", None), (f"``` uses `tl.load`\n{fenced(KERNEL, '```')}", KERNEL),
    # Thinking without an end holds no answer, and a tag inside the program is text.
    (f"<think>\n{fenced(KERNEL)}so", None), (f"{fenced(KERNEL)}<think>\nbetter: {fenced('a = 1')}", KERNEL),
    (f"<think>\nhm\n</think>\n{fenced(WITH_TAGS)}", WITH_TAGS), (fenced(WITH_TAGS), WITH_TAGS),
    (f"<thinking>\n{fenced(KERNEL)}</thinking>\nNo.", None),
    # gpt-oss, with the marks of its channels and without.
    (f"analysisA draft: {fenced('a = 1')}assistantfinal{fenced(KERNEL)}", KERNEL),
    (f"analysisA draft:\n{fenced(KERNEL)}assistantfinal```python\nb = 2\n```", "b = 2\n"),
    (f"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>{fenced(KERNEL)}", KERNEL),
    # A name for another class is a definition; marks that nobody sees stand before no fence.
    (fenced("ModelNew = Fast\n") + fenced("print(1)\n"), "ModelNew = Fast\n"), (f"\ufeff{fenced(KERNEL)}", KERNEL),
    (fenced(KERNEL).replace("\n", "\r"), KERNEL),
])  # fmt: skip
def test_which_block_is_the_program(answer, program):
    assert extract_code(answer) == program


def test_the_class_is_that_of_the_task():
    mine, other = KERNEL.replace("ModelNew", "BlockNew"), KERNEL.replace("ModelNew", "BlockNewer")
    assert extract_code(fenced(mine) + fenced(KERNEL) + fenced(other), "BlockNew") == mine
    assert extract_code(fenced(mine) + fenced("b = 2\n"), "Block") == "b = 2\n"


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


@given(st.sampled_from(["", "- ", "* ", "2. ", "10) "]), st.sampled_from(["  ", "    ", "\t"]), FENCES)
def test_a_block_in_a_list_loses_the_lists_indent(marker, indent, fence):
    body = textwrap.indent(KERNEL, indent)
    opening = f"{marker}{fence}" if marker else f"{indent}{fence}"
    assert extract_code(f"Steps:\n{opening}python\n{body}{indent}{fence}\n") == KERNEL


@given(st.text(max_size=300) | st.text("`~\n python<think/>", max_size=300))
def test_any_text_gives_a_program_of_its_own_lines_or_none(answer):
    code = extract_code(answer)
    if code is not None:
        lines = {line.strip() for line in answer.replace("\r", "\n").split("\n")}
        assert code.strip()
        assert {line.strip() for line in code.split("\n")} <= lines | {""}


@pytest.mark.slow
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
