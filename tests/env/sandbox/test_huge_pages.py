# SPDX-License-Identifier: Apache-2.0
"""Memory in huge pages: fewer entries for a fork to copy, and the same bytes."""

from pathlib import Path

import pytest

from tests.env.processes import printed

ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")
PROGRAM = """
import re
from pathlib import Path
from verl_kernel.env.sandbox import libc

def in_huge_pages():
    return int(re.search(r"AnonHugePages:\\s+(\\d+) kB", Path("/proc/self/smaps_rollup").read_text())[1])

if {refused}:
    libc.LIBC.madvise = lambda *args: -1
blocks = [bytes([number]) * (1 << 20) for number in range(64)]
before = in_huge_pages()
libc.collapse()
assert all(block.count(number) == len(block) for number, block in enumerate(blocks))
print(in_huge_pages() > before)
"""


def more_are_huge(refused):
    return printed("-c", PROGRAM.format(refused=refused)) == "True\n"


@pytest.mark.skipif(not ENABLED.is_file() or "[never]" in ENABLED.read_text(), reason="the kernel has no huge pages")
def test_memory_goes_into_huge_pages_and_keeps_its_bytes():
    assert more_are_huge(refused=False)


def test_where_the_kernel_refuses_nothing_changes():
    assert not more_are_huge(refused=True)
