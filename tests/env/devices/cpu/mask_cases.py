# SPDX-License-Identifier: Apache-2.0
"""Masks made of block and scalar conditions, run against NumPy: run as a script, prints one JSON object.

Every text is a mask both in Triton and in NumPy, over a block of H rows and B columns: `r` and `c` are its rows and
columns, `row` the program, `n`, `m` and `f` arguments, `s` a number loaded from memory.
"""

import importlib.util
import json
import random
import sys
import tempfile
from pathlib import Path

from verl_kernel.env.backends import resolve_device

DEVICE = resolve_device("cpu")
DEVICE.setup()

import numpy as np  # noqa: E402
import torch  # noqa: E402

H, B, PROGRAMS = 4, 8, 4
N, M, F = 5, 2, 0.75
BLOCKS = ("(c < n)", "(r != 1)", "(r * 2 + c >= n)")
SCALARS = ("(row < m)", "(n > m)", "(s > 40.0)", "(s * f > 20.0)", "(row + m == 3)")
PLAIN = (
    *("(c < n) & (row < m)", "(row < m) & (c < n)", "(c < n) | (row < m)", "(row < m) | (c < n)"),
    *("~(row < m) & (c < n)", "~(c < n) & (row < m)", "~((c < n) & (row < m))", "~((row < m) | (c < n))"),
    *("(r < 3) & (c < n) & (row < m)", "(row < m) & ((r < 3) | (c < n))", "((row < m) & (n > m)) & (c < n)"),
    *(
        "(c < n) & (f > 0.5)",
        "(s > 40.0) & (c < n)",
        "(f > 0.5) | (s > 40.0)",
        "~(f > 0.5) & (c < n)",
        "(c < n) ^ (row < m)",
    ),
    *("(row < m)", "~(row < m)", "(c < n)", "(x_row < m) & (r != 1)"),
    *("(c < n) & (row < m) & (B > 4)", "(r != 1) & (c < n) & True"),
)
LOGIC = {
    "(c < n) and (row < m)": "(c < n) & (row < m)",
    "(row < m) or (c < n)": "(row < m) | (c < n)",
    "(c < n) and (r != 1) and (row < m)": "(c < n) & (r != 1) & (row < m)",
    "not (c < n) and (r != 1)": "~(c < n) & (r != 1)",
    "not (row < m) or (c < n)": "~(row < m) | (c < n)",
    "B > 4 and (c < n)": "(c < n)",
    "(c < n) and (B > 4 or row < m)": "(c < n)",
}
"""Masks by Python's words, which Triton's compiler reads lane by lane, and what they mean to NumPy."""
KERNEL = """
@triton.jit
def {name}(x, seen, o, n, m, f, H: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0)
    x_row = row.to(tl.int64)
    r = tl.arange(0, H)[:, None]
    c = tl.arange(0, B)[None, :]
    at = row * H * B + r * B + c
    s = tl.load(x + row * H * B)
    keep = {mask}
    values = tl.load(x + at, mask=keep{other})
    tl.store(o + at, values, mask=keep)
    {rest}
"""


def nested(chance, depth):
    """A random mask that mixes block and scalar conditions."""
    if not depth:
        return chance.choice(chance.choice((BLOCKS, SCALARS)))
    if chance.random() < 0.3:
        return f"~({nested(chance, depth - 1)})"
    return f"({nested(chance, depth - 1)} {chance.choice('&|^')} {nested(chance, depth - 1)})"


def module(masks, directory):
    """Two kernels for each mask: one without `other`, one with, whose masked lanes are shown too."""
    text = "import triton\nimport triton.language as tl\n"
    for number, mask in enumerate(masks):
        text += KERNEL.format(name=f"bare_{number}", mask=mask, other="", rest="")
        shown = "tl.store(seen + at, values)"
        text += KERNEL.format(name=f"other_{number}", mask=mask, other=", other=-1.0", rest=shown)
    path = Path(directory, f"masks_{len(masks)}.py")
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("masks", path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def lanes(mask, x):
    """What the mask is, by NumPy: (PROGRAMS, H, B)."""
    r, c = np.arange(H)[:, None], np.arange(B)[None, :]
    found = []
    for row in range(PROGRAMS):
        names = {"r": r, "c": c, "row": np.int32(row), "x_row": np.int64(row), "s": x[row, 0, 0]}
        sizes = {"n": np.int32(N), "m": np.int32(M), "f": np.float32(F), "B": B}
        found.append(np.broadcast_to(eval(LOGIC.get(mask, mask), {**names, **sizes}), (H, B)))
    return np.stack(found)


def run(kernel, x, o):
    """A launch's error if it has one, the lanes loaded, and the bytes counted."""
    seen, error = torch.full_like(x, -7.0), None
    with DEVICE.record() as events:
        try:
            kernel[(PROGRAMS,)](x, seen, o, N, M, F, H=H, B=B)
        except Exception as exc:  # noqa: BLE001
            error = f"{type(exc).__name__}: {exc}"
    return error, seen.numpy(), events[-1].bytes


def judge(mask, bare, other, x):
    """What is wrong with each of the two kernels of a mask."""
    keep, values = lanes(mask, x.numpy()), x.numpy()
    wanted, shown = np.where(keep, values, -7.0), np.where(keep, values, -1.0)
    moved = 2 * 4 * int(keep.sum()) + PROGRAMS * 4
    for kernel, extra in ((bare, 0), (other, 4 * values.size)):
        o = torch.full_like(x, -7.0)
        error, seen, counted = run(kernel, x, o)
        yield error or ("" if np.array_equal(o.numpy(), wanted) else "stored lanes differ")
        yield "" if not extra or np.array_equal(seen, shown) else "masked lanes do not hold other"
        yield "" if counted == moved + extra else f"{counted} bytes instead of {moved + extra}"


def answers(directory):
    chance = random.Random(7)
    masks = [*PLAIN, *LOGIC, *(nested(chance, depth) for depth in (2, 3) for _ in range(25))]
    kernels = module(masks, directory)
    x = torch.arange(PROGRAMS * H * B, dtype=torch.float32).reshape(PROGRAMS, H, B)
    for number, mask in enumerate(masks):
        pair = (getattr(kernels, f"{kind}_{number}") for kind in ("bare", "other"))
        yield mask, [reason for reason in judge(mask, *pair, x) if reason]


def last_rows_outside(directory):
    """The second program's last rows lie behind the end of what is stored to."""
    kernel = module(["(c < n) & (row < m)"], directory).bare_0
    return run(kernel, torch.ones(PROGRAMS, H, B), torch.ones(2 * H * B - 2 * B))[0]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        json.dump({"masks": dict(answers(place)), "outside": last_rows_outside(place)}, sys.stdout)
