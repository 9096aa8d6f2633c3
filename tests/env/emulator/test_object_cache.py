# SPDX-License-Identifier: Apache-2.0
"""Native code that is kept in a folder."""

import numpy as np
import pytest

from tests.env.emulator.ptx import counted, entry
from verl_kernel.env.emulator.code import ObjectCache
from verl_kernel.env.emulator.kernel import Kernel

LOOKUP = entry(
    "ld.param.u64 %out, [p0]; mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, 4; add.u64 %out, %out, %at; and.b32 %x, %t, 3;"
    "mov.b64 %table, table; mul.wide.u32 %at, %x, 4; add.u64 %table, %table, %at; ld.global.nc.b32 %x, [%table];"
    "st.global.b32 [%out], %x; ret;",
    1,
    ".reg .b32 %t, %x; .reg .b64 %out, %at, %table;",
    ".global .align 4 .b32 table[4] = {11, 22, 33, 44};",
)


def looked_up(cache):
    out = np.zeros(32, np.int32)
    counted(Kernel(LOOKUP, 1, 0, cache), [out])
    return out.tolist()


@pytest.fixture
def cache(tmp_path):
    return ObjectCache(tmp_path / "code")


def test_kept_code_is_not_made_again_and_does_the_same(cache, monkeypatch):
    kept, keep = [], ObjectCache.keep
    monkeypatch.setattr(ObjectCache, "keep", lambda self, *code: kept.append(code) or keep(self, *code))
    assert looked_up(cache) == [11, 22, 33, 44] * 8
    made = len(kept)
    assert looked_up(cache) == [11, 22, 33, 44] * 8
    assert len(kept) == made >= 1


def test_what_is_not_whole_or_gone_is_made_again(cache, tmp_path):
    looked_up(cache)
    for file in (tmp_path / "code").iterdir():
        file.write_bytes(file.read_bytes()[:-7])
    assert looked_up(cache) == [11, 22, 33, 44] * 8
    (tmp_path / "code").rename(tmp_path / "gone")
    assert looked_up(cache) == [11, 22, 33, 44] * 8


def test_a_folder_that_others_may_write_to_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="let its owner alone write there"):
        ObjectCache(tmp_path)
