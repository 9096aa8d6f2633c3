# SPDX-License-Identifier: Apache-2.0
"""Files and values are read as YAML 1.2 has them."""

import pytest

from verl_kernel.data.files import read_yaml, value_of
from verl_kernel.errors import ConfigError


@pytest.mark.parametrize(("text", "value"), [
    ("1e-3", 0.001), ("2", 2), ("true", True), ("null", None), ("off", "off"), ("[a, 1]", ["a", 1]), ("[a", "[a"),
    ("a: b: c", "a: b: c"),
])  # fmt: skip
def test_a_value_is_what_yaml_says_or_the_text(text, value):
    assert value_of(text) == value


def test_a_key_that_stands_twice_is_refused(tmp_path):
    (path := tmp_path / "twice.yaml").write_text("a: 1\na: 2\n")
    with pytest.raises(
        ConfigError, match=r"twice.yaml is no valid YAML \(line 2: found duplicate key .*\): name a file"
    ):
        read_yaml(path, "name a file")


def test_a_row_may_hold_another_ones_keys(tmp_path):
    (path := tmp_path / "rows.yaml").write_text("one: &one {a: 1, b: 2}\ntwo: {<<: *one, b: 3}\n")
    assert read_yaml(path, "")["two"] == {"a": 1, "b": 3}
