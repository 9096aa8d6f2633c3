# SPDX-License-Identifier: Apache-2.0
"""Programs that read like right ones and that no GPU of compute capability 9.0 would run.

Each has a kernel that computes `x + y` for two vectors of 256 numbers, or the product of two matrices. The line
that the compiler must name ends in `# here`; without one it is the line of the `def`.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from tests.env.programs import program, reference


def _task(result: str, *shapes: str) -> str:
    return reference(result, ", ".join(f"torch.randn({shape})" for shape in shapes), arguments="x, y")


TASKS = {
    "sum": _task("x + y", "256", "256"),
    "small_product": _task("x @ y", "4, 4", "4, 4"),
    "product": _task("x @ y", "64, 256", "256, 64"),
}


@dataclass(frozen=True)
class Refused:
    name: str
    words: str
    """A regular expression that the message matches."""
    kernel: str
    launch: str = "k[(1,)](x, y, out, 256)"
    task: str = "sum"

    @property
    def source(self) -> str:
        body = f"out = x.new_empty(x.shape[0], *y.shape[1:])\n{self.launch}\nreturn out"
        return program(self.kernel, body, arguments="x, y")

    @property
    def line(self) -> int:
        lines = self.source.splitlines()
        marked = [number for number, line in enumerate(lines, 1) if line.endswith("# here")]
        return marked[0] if marked else 1 + next(at for at, line in enumerate(lines) if line.startswith("def k("))


def _kernel(body: str, before: str = "") -> str:
    """A kernel that has loaded `x` and `y`; `body` stores."""
    loads = "i = tl.arange(0, 256)\nx, y = tl.load(x_ptr + i), tl.load(y_ptr + i)\n"
    lines = textwrap.indent(loads + textwrap.dedent(body), "    ")
    return f"{textwrap.dedent(before)}\n@triton.jit\ndef k(x_ptr, y_ptr, o_ptr, n):\n{lines}"


# Names, words of the refusal, bodies of kernels and, after dashes, what stands before them.
_BODIES = """
defined_in_if: s is not defined
    if n > 100:
        s = x + y
    tl.store(o_ptr + i, s)  # here

return_in_loop: return
    for step in range(n):
        tl.store(o_ptr + i, x + y)
        if step == 0:  # here
            return

break_in_loop: Break
    s = x
    for step in range(n):
        s = x + y
        break  # here
    tl.store(o_ptr + i, s)

continue_in_loop: Continue
    s = x
    for step in range(2):
        if step == 0:
            continue  # here
        s = x + y
    tl.store(o_ptr + i, s)

dictionary: Dict
    both = {"x": x, "y": y}  # here
    tl.store(o_ptr + i, both["x"] + both["y"])

loop_changes_type: type
    s = 0
    for step in range(1):  # here
        s = s + x + y
    tl.store(o_ptr + i, s)

loop_changes_shape: type|shape
    s = 0.0
    for step in range(2):  # here
        s = s + x * 0.5 + y * 0.5
    tl.store(o_ptr + i, s)

branches_of_two_types: type
    if n > 100:  # here
        s = x + y
    else:
        s = 0
    tl.store(o_ptr + i, s)

branches_of_two_shapes: type
    if n > 100:  # here
        s = x + y
    else:
        s = 0.0
    tl.store(o_ptr + i, s)

global_number: global
    tl.store(o_ptr + i, x * SCALE + y)  # here
---
    SCALE = 1.0

chained_comparison: comparison
    if 0 < n < 1000:  # here
        tl.store(o_ptr + i, x + y)

starred_target: no reason is given
    a, *rest = x, y  # here
    tl.store(o_ptr + i, a + rest[0])

walrus: NamedExpr
    tl.store(o_ptr + i, (s := x + y))  # here

for_over_tuple: no attribute 'func'
    s = x * 0.0
    for part in (x, y):  # here
        s += part
    tl.store(o_ptr + i, s)

match: Match
    match n:  # here
        case 0:
            tl.store(o_ptr + i, x)
        case _:
            tl.store(o_ptr + i, x + y)

else_after_loop: else after for
    if n > 0:
        tl.store(o_ptr + i, x + y)
    else:
        for step in range(n):  # here
            tl.store(o_ptr + i, x)
        else:
            tl.store(o_ptr + i, y)

static_range_of_runtime_size: constexpr
    s = x
    for step in tl.static_range(n // 256):  # here
        s += y
    tl.store(o_ptr + i, s)

growing_list: append
    parts = []
    parts.append(x)  # here
    parts.append(y)
    tl.store(o_ptr + i, parts[0] + parts[1])

error_in_helper: s is not defined
    tl.store(o_ptr + i, helper(x, y, n))
---
    @triton.jit
    def helper(a, b, n):
        if n > 100:
            s = a + b
        return s  # here

returns_of_two_types: return|type
    tl.store(o_ptr + i, helper(x, y, n))
---
    @triton.jit
    def helper(a, b, n):  # here
        if n > 100:
            return a + b
        return 0
"""


def _program(text: str) -> Refused:
    title, _, rest = text.partition("\n")
    name, _, words = title.partition(": ")
    return Refused(name, words, _kernel(*rest.split("\n---\n")))


_SUM = _kernel("tl.store(o_ptr + i, x + y)")
_ANNOTATION = """
Size = int

@triton.jit
def k(x_ptr, y_ptr, o_ptr, n: Size):  # here
    i = tl.arange(0, 256)
    tl.store(o_ptr + i, tl.load(x_ptr + i) + tl.load(y_ptr + i))
"""
_SMALL_PRODUCT = """
@triton.jit
def k(x_ptr, y_ptr, o_ptr):
    i = tl.arange(0, 4)
    places = i[:, None] * 4 + i[None, :]
    product = tl.dot(tl.load(x_ptr + places), tl.load(y_ptr + places))  # here
    tl.store(o_ptr + places, product)
"""
_PRODUCT = """
@triton.jit
def k(x_ptr, y_ptr, o_ptr, depth, BLOCK: tl.constexpr):
    i, j = tl.arange(0, BLOCK), tl.arange(0, 64)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, depth, 64):
        a = tl.load(x_ptr + i[:, None] * depth + start + j[None, :])
        b = tl.load(y_ptr + (start + j)[:, None] * BLOCK + i[None, :])
        total += tl.dot(a, b, input_precision="ieee")
    tl.store(o_ptr + i[:, None] * BLOCK + i[None, :], total)
"""
_STAGES = "k[(1,)](x, y, out, 256, BLOCK=64, num_stages=12)"
PROGRAMS = [
    *map(_program, _BODIES.strip().split("\n\n")),
    Refused("annotation", "global variable Size", _ANNOTATION),
    Refused("three_warps", "power of 2", _SUM, "k[(1,)](x, y, out, 256, num_warps=3)"),
    Refused("sixty_four_warps", "2048 threads.*1024", _SUM, "k[(1,)](x, y, out, 256, num_warps=64)"),
    Refused("misspelt_option", "num_wraps", _SUM, "k[(1,)](x, y, out, 256, num_wraps=4)"),
    Refused("small_dot", "at least|>=", _SMALL_PRODUCT, "k[(1,)](x, y, out)", "small_product"),
    Refused("much_shared_memory", "bytes of shared memory", _PRODUCT, _STAGES, "product"),
]
