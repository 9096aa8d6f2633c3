# SPDX-License-Identifier: Apache-2.0
"""The sizes that a reference names."""

import pytest

from tests.env.programs import reference
from verl_kernel.env import Task
from verl_kernel.env.sizes import size_name
from verl_kernel.errors import TaskError

ONE_SIZE = reference("torch.softmax(x, -1)", "torch.randn(4, columns)")
REFERENCE = ONE_SIZE.replace("get_inputs()", "get_inputs({parameters})") + "WORKLOADS{annotation} = {sizes}\n"


def task(sizes, parameters="columns", annotation=""):
    return Task(REFERENCE.format(sizes=sizes, parameters=parameters, annotation=annotation), "softmax")


@pytest.mark.parametrize(("sizes", "names"), [
    ("[{'columns': 256}, {'columns': 257}]", ["columns=256", "columns=257"]),
    ("[256, 257]", ["256", "257"]),
    ("({'columns': 8},)", ["columns=8"]),
])  # fmt: skip
def test_sizes_have_names(sizes, names):
    assert [size_name(workload) for workload in task(sizes).workloads] == names


def test_a_list_may_be_annotated_or_absent():
    assert task("[8, 9]", annotation=": list[int]").workloads == (8, 9)
    assert Task(ONE_SIZE).workloads == ()


@pytest.mark.parametrize(("sizes", "parameters", "said"), [
    ("[n for n in (1, 2)]", "columns", "is no list of literals"),
    ("{'columns': 8}", "columns", "must be a list of 1 to 64 sizes"),
    ("[]", "columns", "must be a list of 1 to 64 sizes"),
    (str(list(range(65))), "columns", "must be a list of 1 to 64 sizes"),
    ("[{'columns': 8}, 9]", "columns", "mixes keyword arguments and single values"),
    ("[{8: 8}]", "columns", "holds a key that is no text"),
    ("[8, 8]", "columns", "names a size twice"),
    ("[8, 9]", "", "get_inputs takes nothing"),
])  # fmt: skip
def test_sizes_that_cannot_be_read_are_refused(sizes, parameters, said):
    with pytest.raises(TaskError, match=f"reference softmax: WORKLOADS.*{said}"):
        task(sizes, parameters)
