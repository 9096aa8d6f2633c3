# SPDX-License-Identifier: Apache-2.0
"""Lowers loads, stores, asynchronous copies and atomics to calls of library functions, which check each access."""

from __future__ import annotations

from collections.abc import Sequence

from verl_kernel.env.emulator.library.matrices import FACTORS, registers
from verl_kernel.env.emulator.library.traffic import VOID_UNITS
from verl_kernel.env.emulator.lowering.body import Body, is_block_atomic, is_strong, record_event
from verl_kernel.env.emulator.lowering.moves import converged, load_parameter
from verl_kernel.env.emulator.lowering.opcodes import Modifiers, opcode
from verl_kernel.env.emulator.lowering.writer import LANES, WIDE
from verl_kernel.env.emulator.ptx.program import BITS, Immediate, Operand, OperandGroup

# Modifiers that change no value here: hints for caches; `MemoryOrder` reads orders and scopes itself.
_HINTS = (
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "nc",
    "weak",
    "relaxed",
    "acquire",
    "release",
    "volatile",
    "cta",
    "gpu",
    "sys",
    "cluster",
)
_ORDERS = ("relaxed", "acquire", "release", "acq_rel")
_SCOPES = ("cta", "gpu", "sys", "cluster")


def _space(modifiers: Modifiers) -> str | None:
    """Take the space of an access."""
    return modifiers.take("global", "shared", "local", "param", "const")


def _take_hints(body: Body, modifiers: Modifiers) -> int:
    """Take the modifiers for caches; returns how many operands at the end belong to them."""
    while modifiers.take(*_HINTS):
        pass
    # A cache policy is one more operand, at the end.
    has_policy = False
    while hint := modifiers.take_prefix("L1::") or modifiers.take_prefix("L2::"):
        has_policy |= hint == "L2::cache_hint"
    return int(has_policy)


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, OperandGroup) else (operand,)


def _count(modifiers: Modifiers) -> int:
    """Take the number of registers of an access."""
    return {"v2": 2, "v4": 4, "v8": 8, None: 1}[modifiers.take("v2", "v4", "v8")]


def _counted(body: Body, operand: Operand, count: int) -> tuple[Operand, ...]:
    """Return the registers of an operand, of which there must be `count` (raises NotKnown)."""
    operands = _items(operand)
    if len(operands) != count:
        raise body.item.unknown("its registers are of another number")
    return operands


@opcode("ld")
def load(body: Body, modifiers: Modifiers) -> None:
    """Lower a load of one register or several."""
    kind, space = modifiers.type(), _space(modifiers)
    _take_hints(body, modifiers)
    count = _count(modifiers)
    if space == "param":
        load_parameter(body, kind)
        return
    if space is None:
        raise body.item.unknown("generic addresses have no definition here")
    bits, targets = BITS[kind], _counted(body, body.item.operands[0], count)
    if bits == 128:
        raise body.item.unknown()
    result = "{" + ", ".join([WIDE.ints(bits)] * len(targets)) + "}"
    value = body.op(_access(body, "load", space, bits, count=len(targets), result=result))
    if marks := body.order.marks(body.item)[0]:
        record_event(body, marks, body.address(body.item.operands[1], 64), body.condition_bits())
    for index, target in enumerate(targets):
        part = body.op(f"extractvalue {result} {value}, {index}")
        width = body.width(getattr(target, "name", "")) if hasattr(target, "name") else bits
        # PTX ISA, "Operand Size Exceeding Instruction-Type Size".
        if kind.startswith("s") and width > bits:
            part, part_bits = body.op(f"sext {WIDE.ints(bits)} {part} to {WIDE.ints(width)}"), width
        else:
            part_bits = bits
        body.write(target, part, part_bits, WIDE)


@opcode("st")
def store(body: Body, modifiers: Modifiers) -> None:
    """Lower a store of one register or several."""
    kind, space = modifiers.type(), _space(modifiers)
    _take_hints(body, modifiers)
    count = _count(modifiers)
    if space not in ("global", "shared", "local"):
        raise body.item.unknown("generic addresses have no definition here")
    bits, sources = BITS[kind], _counted(body, body.item.operands[1], count)
    if bits == 128:
        raise body.item.unknown()
    values = [body.read(item, bits, WIDE) for item in sources]
    body.do(_access(body, "store", space, bits, count=len(sources), values=values))
    if marks := body.order.marks(body.item)[1]:
        record_event(body, marks, body.address(body.item.operands[0], 64), body.condition_bits())


def _access(
    body: Body, verb: str, space: str, bits: int, *, count: int, result: str = "void", values: Sequence[str] = ()
) -> str:
    """Return the call of the library's function for an access."""
    operand = body.item.operands[1 if verb == "load" else 0]
    room = space if space in ("shared", "local") else "global"
    width = 32 if room == "shared" else 64
    address = body.address(operand, width)
    arguments = [f"{WIDE.ints(width)} {address}", f"i32 {body.condition_bits()}", "ptr %ctx"]
    strong = ("strong",) if is_strong(body.item) else ()
    arguments.append(f"ptr {body.site(' '.join((room, *strong, verb)), bits * count // 8)}")
    if room == "local":
        arguments.append("i32 %warpid")
    arguments += [f"{WIDE.ints(bits)} {value}" for value in values]
    return body.call(result, (room, verb, bits, count, *strong), *arguments)


@opcode("cp")
def copy_asynchronously(body: Body, modifiers: Modifiers) -> None:
    """Lower `cp.async`, which is done immediately; lanes with a source size of 0 write zeros and read nothing."""
    modifiers.need("async")
    if modifiers.take("commit_group", "wait_group", "wait_all"):
        return
    modifiers.need("ca", "cg")
    modifiers.need("shared")
    modifiers.need("global")
    hints = _take_hints(body, modifiers)
    operands = body.item.operands[: len(body.item.operands) - hints]
    target, source = body.address(operands[0], 32), body.address(operands[1], 64)
    if not isinstance(operands[2], Immediate):
        raise body.item.unknown("its size must be a constant")
    size = body.literal(operands[2].text, 32)
    # The size of the source; bytes beyond it are zeros.
    read = body.read(operands[3], 32, WIDE) if len(operands) > 3 else WIDE.const(32, size)
    words = WIDE.ints(32)
    arguments = [
        f"{words} {target}",
        f"{WIDE.ints(64)} {source}",
        f"{words} {read}",
        f"i32 {body.condition_bits()}",
        "ptr %ctx",
    ]
    arguments += [f"ptr {body.site('global load', size)}", f"ptr {body.site('shared store', size)}"]
    body.do(body.call("void", ("copy", size), *arguments))


@opcode("atom", "red")
def atomic(body: Body, modifiers: Modifiers) -> None:
    """Lower an atomic, executed lane after lane, so that no other lane interferes."""
    kind, space = modifiers.type(), modifiers.need("global", "shared")
    modifiers.take(*_ORDERS)
    modifiers.take(*_SCOPES)
    modifiers.take("noftz")
    _take_hints(body, modifiers)
    change = modifiers.need("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
    count = _count(modifiers)
    is_red, bits = body.item.root == "red", BITS[kind]
    operands = body.item.operands if is_red else body.item.operands[1:]
    width = 32 if space == "shared" else 64
    address = body.address(operands[0], width)
    site = body.site(f"{space} atomic", count * bits // 8)
    lanes, scope = body.condition_bits(), ("block",) if is_block_atomic(body.item) else ()
    # All lanes' operands are read before the first result is written: one register may be both.
    values = [body.read(item, bits, WIDE) for item in _counted(body, operands[1], count)]
    targets = () if is_red else _counted(body, body.item.operands[0], count)
    for index, new in enumerate(values):
        element_address = (
            address
            if not index
            else body.op(f"add {WIDE.ints(width)} {address}, {WIDE.const(width, index * bits // 8)}")
        )
        replacement = body.read(operands[2], bits, WIDE) if change == "cas" else new
        numbers = WIDE.ints(bits)
        arguments = [
            f"{WIDE.ints(width)} {element_address}",
            f"i32 {lanes}",
            "ptr %ctx",
            f"ptr {site}",
            f"{numbers} {new}",
            f"{numbers} {replacement}",
        ]
        whole = count if not index else 1  # only the first address is aligned to the whole access
        old = body.op(body.call(numbers, (space, "atomic", change, kind, whole, *scope), *arguments))
        if space == "global":
            _record_events(body, change, element_address, lanes, old=old, compared=new, bits=bits)
        if not is_red:
            body.write(targets[index], old, bits, WIDE)


def _record_events(body: Body, change: str, address: str, lanes: str, *, old: str, compared: str, bits: int) -> None:
    """Record which accesses an atomic may order; a compare-and-swap that finds another value writes nothing."""
    reading, writing = body.order.marks(body.item)
    if change == "cas" and writing:
        record_event(body, reading, address, lanes)
        equal = body.bits(body.op(f"icmp eq {WIDE.ints(bits)} {old}, {compared}"))
        record_event(body, writing, address, body.op(f"and i32 {lanes}, {equal}"))
    else:
        record_event(body, reading | writing, address, lanes)


@opcode("ldmatrix")
def load_matrices(body: Body, modifiers: Modifiers) -> None:
    """Load 8 x 8 matrices of 16-bit elements from shared memory; lane 8 j + i has the address of row i of matrix j."""
    count, is_transposed = _matrices(modifiers)
    converged(body)
    targets = _counted(body, body.item.operands[0], count)
    result = "{" + ", ".join([WIDE.ints(32)] * count) + "}"
    address = body.address(body.item.operands[1], 32)
    arguments = [f"{WIDE.ints(32)} {address}", "ptr %ctx", f"ptr {body.site('shared load', 16)}"]
    value = body.op(body.call(result, ("matrices", count, is_transposed), *arguments))
    for index, target in enumerate(targets):
        body.write(target, body.op(f"extractvalue {result} {value}, {index}"), 32, WIDE)


def _matrices(modifiers: Modifiers) -> tuple[int, bool]:
    """Take the modifiers of a load or a store of matrices; returns their number and whether they are transposed."""
    for name in ("sync", "aligned", "m8n8"):
        modifiers.need(name)
    count, is_transposed = {"x1": 1, "x2": 2, "x4": 4}[modifiers.need("x1", "x2", "x4")], modifiers.has("trans")
    modifiers.need("shared")
    modifiers.need("b16")
    return count, is_transposed


@opcode("stmatrix")
def store_matrices(body: Body, modifiers: Modifiers) -> None:
    """Store 8 x 8 matrices of 16-bit elements to shared memory, as `ldmatrix` loads them.

    Lane 8 j + i stores row i of matrix j, which lies in a register of four lanes (transposed: in halves of eight).
    """
    count, is_transposed = _matrices(modifiers)
    converged(body)
    matrix_words = [body.read(item, 32, WIDE) for item in _counted(body, body.item.operands[1], count)]
    words = [
        _transposed(body, matrix_words, word) if is_transposed else _of_rows(body, matrix_words, word)
        for word in range(4)
    ]
    # Eight lanes have addresses for each matrix.
    lanes = (1 << 8 * count) - 1
    arguments = [
        f"{WIDE.ints(32)} {body.address(body.item.operands[0], 32)}",
        f"i32 {body.op(f'and i32 {body.active_bits()}, {lanes - (1 << 32) if lanes >> 31 else lanes}')}",
        "ptr %ctx",
        f"ptr {body.site('shared store', 16)}",
        *(f"{WIDE.ints(32)} {word}" for word in words),
    ]
    body.do(body.call("void", ("shared", "store", 32, 4), *arguments))


def _of_rows(body: Body, matrix_words: list[str], word: int) -> str:
    """Return for each lane a word of the row that it stores: lane 4 i + word of the matrix has it."""
    return _chosen(body, matrix_words, [4 * row + word for row in range(8)])


def _transposed(body: Body, matrix_words: list[str], word: int) -> str:
    """Return the same of columns: their elements are the lower or the upper halves of two lanes' words."""
    words, parts = WIDE.ints(32), []
    for element in (2 * word, 2 * word + 1):
        pair = _chosen(body, matrix_words, [4 * element + row // 2 for row in range(8)])
        shifts = "<" + ", ".join(f"i32 {16 * (lane % 2)}" for lane in range(LANES)) + ">"
        part = body.op(f"lshr {words} {pair}, {shifts}")
        parts.append(body.op(f"and {words} {part}, {WIDE.const(32, 0xFFFF)}"))
    return body.op(f"or {words} {parts[0]}, {body.op(f'shl {words} {parts[1]}, {WIDE.const(32, 16)}')}")


def _chosen(body: Body, matrix_words: list[str], lanes: list[int]) -> str:
    """Return for each lane 8 j + i a word of register j, from the lane that is given for row i."""
    pairs = [matrix_words[number : number + 2] for number in range(0, len(matrix_words), 2)]
    joined = [body.shuffle("i32", pair[0], range(2 * LANES), second=pair[-1]) for pair in pairs]
    indices = [LANES * (lane // 8 % 2) + lanes[lane % 8] for lane in range(LANES)]
    picked = [body.shuffle("i32", pair_words, indices, 2 * LANES) for pair_words in joined]
    if len(picked) == 1:
        return picked[0]
    return body.shuffle(
        "i32", picked[0], [lane if lane < 16 else LANES + lane for lane in range(LANES)], second=picked[1]
    )


@opcode("mma")
def multiply_matrices(body: Body, modifiers: Modifiers) -> None:
    """Multiply matrices that the lanes of a warp hold together (PTX ISA, "mma.sync")."""
    modifiers.need("sync")
    modifiers.need("aligned")
    shape = modifiers.need("m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32", "m8n8k4")
    modifiers.need("row")
    modifiers.need("col")
    third, second, first, result_kind = (modifiers.type() for _ in range(4))
    saturates = modifiers.has("satfinite")
    if third != result_kind or (saturates and result_kind != "s32"):
        raise body.item.unknown()
    converged(body)
    groups = [_items(operand) for operand in body.item.operands]
    register_counts = registers(shape, first, second, result_kind)
    if register_counts and [len(group) for group in groups] != register_counts:
        raise body.item.unknown(f"its matrices are of {', '.join(map(str, register_counts))} registers")
    width = 64 if result_kind == "f64" else 32
    numbers = WIDE.ints(width)
    values = [f"{numbers} {body.read(item, width, WIDE)}" for group in groups[1:] for item in group]
    result = "{" + ", ".join([numbers] * len(groups[0])) + "}"
    key = ("product", shape, first, second, result_kind, saturates)
    value = body.op(body.call(result, key, *values))
    # Products of float64 are not counted on zeros: their prices have no such discount.
    if width == 32:
        depth, word = shape.removeprefix("m16n8k"), VOID_UNITS.index("tf32" if first == "tf32" else "half")
        factors = values[: len(groups[1]) + len(groups[2])]
        body.do(body.call("void", ("voids", depth, FACTORS[first].count, word), *factors, "ptr %ctx"))
    for index, target in enumerate(groups[0]):
        body.write(target, body.op(f"extractvalue {result} {value}, {index}"), width, WIDE)
