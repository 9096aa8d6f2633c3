# SPDX-License-Identifier: Apache-2.0
"""A program is novel unless an answer of the cold start holds its bytes, or its normal form."""

import ast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.data.families import normal_form
from verl_kernel.errors import DataError
from verl_kernel.reward.novelty import ColdStart, Novelty, check_cold_start, read_cold_start

KNOWN, NEW_BYTES, NEW = Novelty(form=False, bytes=False), Novelty(form=False, bytes=True), Novelty(True, True)
OPS = ("relu", "exp", "abs")


def program(op: str = "relu", name: str = "x", comment: str = "") -> str:
    return f"class ModelNew:\n    def forward(self, {name}):  # {comment}\n        return torch.{op}({name})\n"


def answer(code: str) -> str:
    return f"Here it is.\n```python\n{code}```\n"


@pytest.mark.parametrize(("code", "found"), [
    (program(), KNOWN), (program("exp"), KNOWN), (program(name="value"), NEW_BYTES),
    (program(comment="fast"), NEW_BYTES), (program("exp").replace("    ", "  "), NEW_BYTES), (program("abs"), NEW),
    (program().replace("(x)\n", "(x) + x\n"), NEW), ("class ModelNew(:\n", KNOWN), ("class ModelNew(;\n", NEW),
    ("x = 1\0", NEW), ("x = " + "(" * 5000, NEW), ("x = '\ud800'", NEW), (None, KNOWN),
])  # fmt: skip
def test_what_is_new(code, found):
    cold = ColdStart([answer(program()), "no program", answer(program("exp")), answer("class ModelNew(:\n")])
    assert cold.novelty(code) == found


def test_without_answers_every_program_is_new():
    assert ColdStart([]).novelty(program()) == NEW


@given(
    st.lists(st.builds(program, st.sampled_from(OPS), st.sampled_from("xyz"), st.sampled_from("ab")), max_size=5),
    st.builds(program, st.sampled_from(OPS), st.sampled_from("xyz"), st.sampled_from("ab")),
)
def test_novelty_is_that_of_a_plain_comparison(cold, asked):
    found = ColdStart(map(answer, cold)).novelty(asked)
    assert found.bytes == (asked not in cold)
    assert found.form == (normal_form(ast.parse(asked)) not in [normal_form(ast.parse(one)) for one in cold])


def talk(*messages):
    return [{"role": role, "content": content} for role, content in messages]


def written(path, talks, column="messages"):
    pq.write_table(pa.table({column: talks}), path)
    return str(path)


def test_all_answers_of_all_talks_count_and_questions_do_not(tmp_path):
    first = talk(("user", answer(program("abs"))), ("assistant", answer(program())), ("user", "again"))
    talks = [[*first, *talk(("assistant", answer(program("exp"))))], None]
    cold = read_cold_start(written(tmp_path / "corpus.parquet", talks))
    assert [cold.novelty(program(op)) for op in OPS] == [KNOWN, KNOWN, NEW]


def test_no_file_is_no_cold_start():
    assert read_cold_start(None) is None


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"nothing\.parquet cannot be read \(No such file or directory\): name"):
        check_cold_start(str(tmp_path / "nothing.parquet"))


@pytest.mark.parametrize(
    ("column", "value"), [("prompt", talk(("user", "a"))), ("messages", "text"), ("messages", [{"text": "a"}])]
)
def test_a_file_without_conversations_is_refused(tmp_path, column, value):
    path = written(tmp_path / "tasks.parquet", [value], column)
    with pytest.raises(DataError, match="has no column `messages` of messages with role and content"):
        read_cold_start(path)
