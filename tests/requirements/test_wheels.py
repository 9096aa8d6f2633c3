# SPDX-License-Identifier: Apache-2.0
"""pip's configuration reaches uv, and a failed installation is one sentence."""

import itertools
import re

import pytest
from wheels import explain, pip_config, uv_options

LISTED = """\
:env:.find-links='/wheels/a /wheels/b'
:env:.default-timeout='180'
global.cert='/etc/ssl/proxy.crt'
global.extra-index-url='file:///one/simple file:///two/simple'
global.find-links='/elsewhere'
global.index-url='https://mirror.example/simple'
install.index-url='https://nearer.example/simple'
global.trusted-host='mirror.example'
"""


def test_source_options_are_handed_over_in_pips_order():
    options = uv_options(pip_config(LISTED))
    pairs = list(itertools.pairwise(options))
    assert ("--default-index", "https://nearer.example/simple") in pairs
    assert [value for option, value in pairs if option == "--index"] == ["file:///one/simple", "file:///two/simple"]
    assert [value for option, value in pairs if option == "--find-links"] == ["/wheels/a", "/wheels/b"]
    assert ("--allow-insecure-host", "mirror.example") in pairs
    assert [value for option, value in pairs if option == "--cert"] == ["/etc/ssl/proxy.crt"]
    assert ("--index-strategy", "unsafe-best-match") in pairs
    assert "180" not in options
    assert "--no-index" not in options


def test_lines_of_several_values_and_no_index():
    config = pip_config("global.find-links='\\n/a\\n/b'\n:env:.no-index='true'\n")
    assert config["find-links"] == ["/a", "/b"]
    assert "--no-index" in uv_options(config)
    assert "--no-index" not in uv_options(pip_config("global.no-index='false'\n"))


def test_an_index_by_name_takes_the_place_of_all_others():
    options = uv_options(pip_config(LISTED), "https://torch.example/cpu")
    assert [b for a, b in itertools.pairwise(options) if a == "--default-index"] == ["https://torch.example/cpu"]
    assert "--index" not in options
    assert "--find-links" not in options
    assert "/etc/ssl/proxy.crt" in options


@pytest.mark.parametrize(("output", "sentence"), [
    ("error: Failed to install\n  cause: failed to write: No space left on device (os error 28)\n", "disk is full"),
    ("  cause: dns error\n  cause: failed to lookup address information\n", "index did not answer: check the network"),
    ("ERROR: Could not find a version that satisfies the requirement uv==0\n", "index did not answer"),
    ("  cause: Because there is no version of triton==3.7.1 and you require it\n", "lacks a locked version"),
    (
        "  cause: Because triton was not found in the provided package locations and\n         you require "
        "triton==3.7.1, we can conclude that your requirements are\n         unsatisfiable.\n",
        "lacks a locked version.*triton==3",
    ),
    ("first\nsomething new went wrong\n\n", r"failed \(something new went wrong\): `make env` again"),
    ("", "no word of the cause"),
])  # fmt: skip
def test_a_failure_is_one_sentence_with_cause_and_remedy(output, sentence):
    text = explain(output)
    assert re.search(sentence, text)
    assert "\n" not in text
