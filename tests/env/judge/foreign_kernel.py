# SPDX-License-Identifier: Apache-2.0
"""A kernel that lives in a file of its own."""

import triton
import triton.language as lang


@triton.jit
def touch(x, B: lang.constexpr):
    lang.store(x + lang.arange(0, B), lang.load(x + lang.arange(0, B)))


def launch(x):
    touch[(1,)](x, B=4)
