# SPDX-License-Identifier: Apache-2.0
"""The configurations in docs/cluster.md are ones that the gym takes."""

import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from verl_kernel.reward.options import parse_options
from verl_kernel.verl_keys import find

PAGE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)
NAMES = [["judge"], ["accelerator_type:H100", "accelerator_type:A100"]]


@pytest.mark.parametrize(("block", "names"), list(zip(BLOCKS, NAMES, strict=True)))
def test_a_configuration_parses(block, names):
    options = parse_options(find(OmegaConf.create(block), "kernelgym")).env
    assert [group.name for group in options.judge_resources] == names
