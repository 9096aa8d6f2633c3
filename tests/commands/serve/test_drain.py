# SPDX-License-Identifier: Apache-2.0
"""What the command refuses; a live pool is drained in `tests/env/pool/cluster/test_two_types.py`."""

import pytest
from typer.testing import CliRunner

from verl_kernel.cli import app


def test_without_a_cluster_it_is_one_sentence_and_exit_code_2():
    result = CliRunner().invoke(app, ["serve-drain", "node-7", "--address", "127.0.0.1:1"])
    assert result.exit_code == 2
    assert result.output.count("\n") == 1
    assert result.output.startswith("Error: no Ray cluster answers at 127.0.0.1:1")


@pytest.mark.parametrize("words", [[], ["node-7", "--judge", "3"]])
def test_it_takes_a_node_or_a_judge(words):
    result = CliRunner().invoke(app, ["serve-drain", *words])
    assert result.exit_code == 2
    assert "Error: which judges are meant is unclear: name a node" in result.output
