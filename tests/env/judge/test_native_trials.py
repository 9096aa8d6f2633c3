# SPDX-License-Identifier: Apache-2.0
"""Kernels run as Triton compiles them: what is right is paid, in whatever way it is written, what is wrong is not."""

import os
import signal

import pytest

from tests.env.programs import program, program_of, reference
from tests.tiers import one_of_each
from verl_kernel.env import EvalStatus, GymOptions, Task
from verl_kernel.env.judge.processes.runner import RunnerProcess
from verl_kernel.errors import InfraError

pytestmark = pytest.mark.processes
OPTIONS = GymOptions(device="cpu", correctness_trials=3, run_timeout_s=3)

CUMSUM = Task(reference("torch.cumsum(x, 0)", "torch.randn(32, 64)"), task_id="cumsum")
HALF = Task(CUMSUM.reference.replace("randn(32, 64)", "randn(32, 64, dtype=torch.bfloat16)"), task_id="cumsum_bfloat16")
HOST = "out = torch.empty_like(x)\ncolumns[(2,)](x, out, x.shape[0], x.shape[1], BLOCK=32)\nreturn out"
COLUMNS = """
@triton.jit
def columns(x, out, rows, width, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        total += tl.load(x + row * width + place)
        tl.store(out + row * width + place, {value})
"""
RIGHT = program(COLUMNS.format(value="total"), HOST)
IN_ORDER = program(
    """
@triton.jit
def following(x, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    place = tl.arange(0, BLOCK)
    total = tl.load(x + row * width + place)
    total += tl.load(out + (row - 1) * width + place, mask=place < width * row, other=0.0)
    tl.store(out + row * width + place, total)
""",
    "out = torch.empty_like(x)\nfollowing[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)\nreturn out",
)
"""Right where its programs run one after another."""
LOCK = "    while tl.atomic_cas(lock, 0, 1) == 1:\n        pass\n    tl.atomic_xchg(lock, 0)\n    row = "
LOCKED = (
    IN_ORDER.replace("x, out, width", "x, out, lock, width")
    .replace("    row = ", LOCK)
    .replace("(x, out, x.shape[1]", "(x, out, torch.zeros(1, dtype=torch.int32), x.shape[1]")
)
TWO_STORES = program(
    COLUMNS.format(value="total, mask=total == total")
    .replace("total = tl.zeros((BLOCK,), tl.float32)", "total = tl.load(x + place)\n    tl.store(out + place, total)")
    .replace("range(rows)", "range(1, rows)"),
    HOST,
)
TUNED = program(
    '@triton.autotune(configs=[triton.Config({"BLOCK": size}) for size in (16, 32, 64)], key=["width"])\n'
    + COLUMNS.format(value="total").strip().replace("    total =", "    tl.static_assert(BLOCK <= 32)\n    total ="),
    HOST.replace("[(2,)]", "[lambda meta: (x.shape[1] // meta['BLOCK'],)]").replace(", BLOCK=32", ""),
)
"""Its last configuration does not compile."""
ADDING = (
    TUNED.replace("tl.store(", "tl.atomic_add(")
    .replace("empty_like", "zeros_like")
    .replace('key=["width"]', 'key=["width"], reset_to_zero=["out"]')
)
"""What one configuration leaves behind would spoil the next one's sums, were it not set back."""

DOUBLED = Task(reference("torch.stack((2 * x, 2 * y))", "torch.randn(64), torch.randn(64)", "x, y"), task_id="doubled")


def doubling(text: str, members: str = "pass") -> str:
    """A candidate for `DOUBLED` that logs, as many do."""
    head = "import logging\nfrom triton.tools.tensor_descriptor import TensorDescriptor\n\n"
    return program_of(f"{head}logger = logging.getLogger(__name__)\n{text}", members)


TABLE_KERNEL = """
@triton.jit
def doubling(table, out, n: tl.constexpr):
    row, place = tl.program_id(0), tl.arange(0, n)
    x = tl.load(table + row).to(tl.pointer_type(tl.float32))
    tl.store(out + row * n + place, 2 * tl.load(x + place))
"""
TABLE_FORWARD = """
def forward(self, x, y):
    out = torch.empty(2, 64)
    doubling[(2,)](torch.tensor([x.data_ptr(), y.data_ptr()]), out, 64)
    return out
"""
TABLE = doubling(TABLE_KERNEL + TABLE_FORWARD)
STORED_TABLE = doubling(f"""
@triton.jit
def noting(x, y, table):
    tl.store(table, x.to(tl.int64))
    tl.store(table + 1, y.to(tl.int64))
{TABLE_KERNEL}
def forward(self, x, y):
    out, table = torch.empty(2, 64), torch.zeros(2, dtype=torch.int64)
    noting[(1,)](x, y, table)
    doubling[(2,)](table, out, 64)
    return out
""")
FUNCTIONS = doubling("""
@tl.constexpr
def widest(dtype: tl.dtype) -> tl.dtype:
    return tl.float32 if dtype.is_fp16() or dtype.primitive_bitwidth == 32 else dtype

exp = tl.exp

@triton.jit
def doubling(x, out, n: tl.constexpr):
    kind: tl.constexpr = widest(x.type.element_ty)
    place = tl.arange(0, n)
    tl.store(out + place, (2 * tl.load(x + place) * exp(0.0)).to(kind))
def forward(self, x, y):
    out = torch.empty(2, 64)
    logger.debug("doubles %s", x.shape)
    with torch.accelerator.device_index(x.device.index):
        for number, tensor in enumerate((x, y)):
            doubling[(1,)](tensor, out[number], 64)
    return out
""")
DESCRIPTOR = doubling("""
def set_block(nargs):
    nargs["source"].block_shape = [nargs["BLOCK"]]

@triton.autotune([triton.Config({"BLOCK": b}, pre_hook=set_block) for b in (16, 32)], key=["n"])
@triton.jit
def doubling(source, out, n, BLOCK: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    tl.store(out + first + tl.arange(0, BLOCK), 2 * source.load([first]))
def forward(self, x, y):
    out = torch.empty(2, 64)
    for number, tensor in enumerate((x, y)):
        source = TensorDescriptor(tensor, shape=[64], strides=[1], block_shape=[1])
        doubling[lambda meta: (64 // meta["BLOCK"],)](source, out[number], 64)
    return out
""")
REMEMBERED = """x, y):
    key = torch.tensor([x.data_ptr()])[0].item()
    if key in self.seen:
        return self.seen[key]"""
KEPT = TABLE_FORWARD.replace("x, y):", REMEMBERED).replace("return out", "self.seen[key] = out\n    return out")
MEMO = doubling(TABLE_KERNEL + KEPT, "self.seen = {}")
PAID = {
    "plain": (CUMSUM, RIGHT, 1.0),
    "two stores": (CUMSUM, TWO_STORES, 1.0),
    "16 bits": (HALF, RIGHT, 1.0),
    "a configuration that does not compile": (CUMSUM, TUNED, 1.0),
    "configurations that add": (CUMSUM, ADDING, 0.5),  # the other half is to fill with zeros
    "a table of addresses": (DOUBLED, TABLE, 1.0),
    "a table that a kernel stores": (DOUBLED, STORED_TABLE, 0.5),  # to note an address is no compute
    "functions at compile time": (DOUBLED, FUNCTIONS, 1.0),
    "descriptors": (DOUBLED, DESCRIPTOR, 1.0),
}


@pytest.mark.parametrize("name", PAID)
def test_what_is_right_is_paid(name, judge):
    task, source, coverage = PAID[name]
    result = judge.evaluate(task, source)
    assert result.status is EvalStatus.OK, result.error
    assert result.speedup > 0, result.error
    assert result.number_coverage == coverage
    assert len(result.launches) == (2 if name == "a table that a kernel stores" else 1)


# It looks whether its counter is a number of Python's, as it would be in an interpreter.
TOLD_APART = program(COLUMNS.format(value="total if isinstance(row, int) else total + 1.0"), HOST)


ENDLESS = """        if not isinstance(row, int):
            while width > 0:
                tl.atomic_add(out + place, 1.0)
        total +="""
NO_TUPLE = "    parts = ()\n    parts += (BLOCK, print)[:1]\n    total = tl.zeros"
ONES = program(
    """
@triton.jit
def filling(out, BLOCK: tl.constexpr):
    tl.store(out + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), 1.0)
""",
    "out = torch.empty_like(x)\nfilling[(x.numel() // 64,)](out, BLOCK=64)\nreturn torch.cumsum(x, 0) * out",
)
INCORRECT, CRASH = EvalStatus.INCORRECT, EvalStatus.CRASH
WRONG = {
    "other values": (CUMSUM, TOLD_APART, INCORRECT, "WrongValues", "differs"),
    "in order": (CUMSUM, IN_ORDER, INCORRECT, "WrongValues", "index ["),
    "in order beside a lock": (CUMSUM, LOCKED, INCORRECT, "WrongValues", "index ["),
    "endless": (CUMSUM, RIGHT.replace("        total +=", ENDLESS), EvalStatus.TIMEOUT, "Timeout", "run_timeout_s"),
    "no compiler takes it": (
        CUMSUM, RIGHT.replace("    total = tl.zeros", NO_TUPLE), EvalStatus.COMPILE_ERROR, "AttributeError",
        "parts += (BLOCK",
    ),
    "clusters": (
        CUMSUM, RIGHT.replace("BLOCK=32)", "BLOCK=32, num_ctas=2)"), EvalStatus.RUNTIME_ERROR, "CompiledUnknown",
        "runs no clusters",
    ),
    "needed for its constant": (CUMSUM, ONES, EvalStatus.DECOY, "LaunchIrrelevant", ""),
    "without a launch": (CUMSUM, program("", "return x.clone()"), INCORRECT, "WrongValues", ""),
    "table beyond a tensor": (DOUBLED, TABLE.replace("(x + place)", "(x + place + 64)"), CRASH, "", ""),
    "table of numbers": (DOUBLED, TABLE.replace("[x.data_ptr(), y.data_ptr()]", "[1 << 44, 1 << 45]"), CRASH, "", ""),
    "table of memory that is gone": (
        DOUBLED, TABLE.replace("[x.data_ptr(), y.data_ptr()]", "[(t + 0).data_ptr() for t in (x, y)]"), CRASH, "", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", one_of_each(WRONG, lambda name: name.split()[0]))
def test_what_is_wrong_as_compiled_is_wrong(name, judge):
    task, source, status, kind, part = WRONG[name]
    result = judge.evaluate(task, source)
    assert result.status is status, result.error
    assert kind in result.error.type, result.error
    assert part in result.error.message


def test_results_by_address_are_wrong_or_replayed(judge):
    result = judge.evaluate(DOUBLED, MEMO)
    assert result.status is INCORRECT or "replayed_output" in result.hack_flags, (result.status, result.error)


def test_a_kernel_that_was_judged_before_is_compiled_no_more(judge):
    judge.evaluate(CUMSUM, RIGHT)
    forked = judge._emulator.store.forked
    other = RIGHT.replace("import torch\n", "import math\nimport torch\n", 1).replace(
        "forward(self, x):", "forward(self, x, y=1):"
    )
    assert judge.evaluate(CUMSUM, other).status is EvalStatus.OK
    assert judge._emulator.store.forked == forked


def test_a_compiling_process_that_is_killed_is_the_gyms_failure(judge, monkeypatch):
    judge.evaluate(CUMSUM, RIGHT)  # its processes have started
    fork = judge.processes.compiling.fork

    def killed(*args: object) -> RunnerProcess:
        process = fork(*args)
        os.kill(process.pid, signal.SIGKILL)
        return process

    monkeypatch.setattr(judge.processes.compiling, "fork", killed)
    with pytest.raises(InfraError, match="compiling process"):
        judge.evaluate(CUMSUM, RIGHT.replace("BLOCK=32", "BLOCK=32, num_warps=2"))
