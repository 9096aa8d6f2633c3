# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel profile` as a user runs it: a process, its exit code, its two streams."""

import json
import re

import pytest

from tests.commands.lines import ROOT, in_a_process
from verl_kernel.env.result import EvalResult

pytestmark = pytest.mark.processes
EXAMPLES = ROOT / "examples"
TORCH_ONLY = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2.0 + 1.0)
"""


def test_the_page_of_the_docs_shows_what_the_command_prints():
    page = (ROOT / "docs" / "profile.md").read_text()
    done = in_a_process("profile", "examples/reference.py", "examples/lazy.py", "--seed", 1)
    assert done.returncode == 0, done.stderr
    assert f"```text\n{done.stdout}```" in page


@pytest.mark.exhaustive
def test_the_long_form_is_a_page_and_the_result_is_json(tmp_path):
    page = tmp_path / "new" / "page.html"
    done = in_a_process("profile", EXAMPLES / "reference.py", EXAMPLES / "fused.py", "--page", page, "--json")
    assert done.returncode == 0, done.stderr
    result = EvalResult.model_validate(json.loads(done.stdout))
    assert result.profile.launches[0].name == "fused"
    assert "Roofline" in page.read_text()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("torch_only.py", TORCH_ONLY, "torch_only.py has no profile.* launched no kernel"),
        ("wrong.py", None, r"wrong.py has no profile, the program was not timed \(incorrect\)"),
    ],
)
def test_a_program_that_is_not_timed_has_no_profile(tmp_path, name, text, said):
    path = tmp_path / name
    path.write_text(text or (EXAMPLES / name).read_text())
    done = in_a_process("profile", EXAMPLES / "reference.py", path)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert re.fullmatch(rf"Error: .*{said}.*\n", done.stderr)
