# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel profile` as a user runs it: a process, its exit code, its two streams."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from verl_kernel.env.result import EvalResult

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TORCH_ONLY = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2.0 + 1.0)
"""


def profile(*arguments, cwd=ROOT):
    code = "import sys; from verl_kernel.cli import app; sys.argv[0] = 'verl-kernel'; app()"
    command = [sys.executable, "-c", code, "profile", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)


def test_the_page_of_the_docs_shows_what_the_command_prints():
    page = (ROOT / "docs" / "profile.md").read_text()
    done = profile("examples/reference.py", "examples/lazy.py", "--seed", 1)
    assert done.returncode == 0, done.stderr
    assert f"```text\n{done.stdout}```" in page


def test_the_long_form_is_a_page_and_the_result_is_json(tmp_path):
    page = tmp_path / "new" / "page.html"
    done = profile(EXAMPLES / "reference.py", EXAMPLES / "fused.py", "--page", page, "--json")
    assert done.returncode == 0, done.stderr
    result = EvalResult.model_validate(json.loads(done.stdout))
    assert result.profile.launches[0].name == "fused"
    assert "Roofline" in page.read_text()


def refused(*arguments):
    done = profile(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert re.fullmatch(r"Error: .+\n", done.stderr)
    return done.stderr


def test_a_program_that_launches_nothing_has_no_profile(tmp_path):
    (tmp_path / "torch_only.py").write_text(TORCH_ONLY)
    text = refused(EXAMPLES / "reference.py", tmp_path / "torch_only.py")
    assert "torch_only.py has no profile" in text
    assert "launched no kernel" in text


def test_a_wrong_program_has_no_profile():
    text = refused(EXAMPLES / "reference.py", EXAMPLES / "wrong.py")
    assert "wrong.py has no profile, the program was not timed (incorrect)" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((EXAMPLES / "reference.py", "missing.py"), "missing.py does not exist"),
        (("missing.py", EXAMPLES / "lazy.py"), "missing.py does not exist"),
        ((EXAMPLES / "reference.py", EXAMPLES / "lazy.py", "--page", EXAMPLES), "--page .* is a folder"),
        ((EXAMPLES / "reference.py", EXAMPLES / "lazy.py", "--gpu-profile", "b200"), "--gpu-profile is 'b200'"),
    ],
)
def test_bad_input_gets_a_sentence(arguments, words):
    assert re.search(words, refused(*arguments))
