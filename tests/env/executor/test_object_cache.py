# SPDX-License-Identifier: Apache-2.0
"""Native code that is kept in a folder."""

import numpy as np
import pytest

from tests.env.executor.test_parser import HEAD
from verl_kernel.env.executor.code import ObjectCache
from verl_kernel.env.executor.kernel import Buffer, Kernel

LOOKUP = f"""{HEAD}
.global .align 4 .b32 table[4] = {{11, 22, 33, 44}};
.visible .entry k(
.param .u64 .ptr .global .align 1 k_param_0
)
{{
.reg .b32 %r<4>; .reg .b64 %rd<6>;
ld.param.b64 %rd1, [k_param_0];
mov.u32 %r1, %tid.x;
and.b32 %r2, %r1, 3;
mul.wide.u32 %rd2, %r2, 4;
mov.b64 %rd3, table;
add.s64 %rd4, %rd3, %rd2;
ld.global.nc.b32 %r3, [%rd4];
mul.wide.u32 %rd5, %r1, 4;
add.s64 %rd5, %rd5, %rd1;
st.global.b32 [%rd5], %r3;
ret;
}}
"""


def looked_up(cache):
    out = np.zeros(32, np.int32)
    Kernel(LOOKUP, 1, 0, cache).launch((1,), [out.ctypes.data], [Buffer(out.ctypes.data, out.nbytes)])
    return out.tolist()


@pytest.fixture
def cache(tmp_path):
    return ObjectCache(tmp_path / "code")


def test_kept_code_does_the_same(cache):
    assert looked_up(cache) == looked_up(cache) == [11, 22, 33, 44] * 8


def test_kept_code_is_not_made_again(cache, monkeypatch):
    kept = []
    monkeypatch.setattr(
        ObjectCache,
        "keep",
        lambda self, written, code, keep=ObjectCache.keep: (kept.append(code), keep(self, written, code)),
    )
    looked_up(cache)
    made = len(kept)
    looked_up(cache)
    assert made >= 1
    assert len(kept) == made


def test_a_file_that_is_not_whole_is_made_again(cache, tmp_path):
    looked_up(cache)
    for file in (tmp_path / "code").iterdir():
        file.write_bytes(file.read_bytes()[:-7])
    assert looked_up(cache) == [11, 22, 33, 44] * 8


def test_a_folder_that_is_gone_is_no_failure(cache, tmp_path):
    (tmp_path / "code").rmdir()
    assert looked_up(cache) == [11, 22, 33, 44] * 8


def test_a_folder_that_others_may_write_to_is_refused(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match="let its owner alone write there"):
        ObjectCache(folder)
