# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.reward.extract import extract_code


def test_the_last_python_block_is_the_program():
    answer = "first\n```python\na = 1\n```\nbetter:\n```python\nb = 2\n```\ndone"
    assert extract_code(answer) == "b = 2\n"


def test_a_block_without_language_counts_and_other_languages_do_not():
    assert extract_code("```\na = 1\n```") == "a = 1\n"
    assert extract_code("```python\na = 1\n```\n```bash\nls\n```") == "a = 1\n"


def test_an_unclosed_or_empty_block_is_no_program():
    assert extract_code("```python\na = 1\n") is None
    assert extract_code("```python\n\n```") is None
    assert extract_code("no code at all") is None
    assert extract_code("") is None


def test_fences_inside_strings_of_an_earlier_line_do_not_end_the_block():
    assert extract_code("```python\ns = 'x ``` y'\n```") == "s = 'x ``` y'\n"


@given(st.text(max_size=300))
def test_any_text_gives_a_program_or_none(answer: str):
    code = extract_code(answer)
    assert code is None or code in answer
