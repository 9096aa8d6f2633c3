# SPDX-License-Identifier: Apache-2.0
"""The suite's reference with 128 MB in and 64 MB out, and kernels for it.

More than any GPU's L2 cache holds, so that a kernel's time is that of its traffic, not its launch.
"""

from tests.env import programs as small

ROWS, COLUMNS = 4096, 4096
REFERENCE = small.REFERENCE.replace("randn(8, 64)", f"randn({ROWS}, {COLUMNS})").replace("[64, ", f"[{COLUMNS}, ")
_SCALED = """
@triton.jit
def scaled(x, out, n, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * scale, mask=i < n)

class Base"""
HEADER = (
    small.HEADER.replace("tl.program_id(0) *", "tl.program_id(0).to(tl.int64) *")
    .replace("fused[(1,)]", "fused[(triton.cdiv(x.numel(), 1024),)]")
    .replace("BLOCK=512", "BLOCK=1024")
    .replace("\nclass Base", _SCALED)
)


def candidate(body: str, before: str = "") -> str:
    return small.candidate(body, before).replace(small.HEADER, HEADER)


HONEST = candidate("return self.right(x, y)")
SLOW = candidate("for _ in range(20): out = self.right(x, y)\nreturn out")
MIXED = candidate("""
out, v, n = torch.empty_like(x), torch.relu(x * self.weight + y), x.numel()
scaled[(triton.cdiv(n, 1024),)](v, out, n, self.scale, BLOCK=1024)
return out
""")
