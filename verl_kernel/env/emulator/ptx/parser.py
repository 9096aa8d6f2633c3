# SPDX-License-Identifier: Apache-2.0
"""Parses the PTX of one kernel, as LLVM's NVPTX backend writes it, inline assembly included."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from verl_kernel.env.emulator.errors import NotKnown
from verl_kernel.env.emulator.ptx.calls import inlined
from verl_kernel.env.emulator.ptx.program import (
    BITS,
    Address,
    Immediate,
    Instruction,
    Not,
    Operand,
    OperandGroup,
    Pair,
    Parameter,
    PtxProgram,
    Register,
    SourceLine,
    Special,
    Symbol,
    Unused,
)

_SPACES = frozenset({"global", "shared", "local", "param", "const"})
"""State spaces that an access can name."""


def with_local(program: PtxProgram) -> PtxProgram:
    """Name the local space in accesses without a space whose address can only be one of local memory."""
    local_registers = _local(program)
    if local_registers:
        program.instructions[:] = [_with_local_space(item, local_registers) for item in program.instructions]
    return program


def _local(program: PtxProgram) -> set[str]:
    """Return the registers that only hold generic addresses of local memory."""
    mixed: set[str] = set()
    while True:
        local_only = _derived(program, mixed)
        refuted = {
            name for item in program.instructions if not _is_local(item, local_only) for name in _targets(item)
        } & local_only
        if not refuted:
            return local_only
        mixed |= refuted


def _derived(program: PtxProgram, mixed: set[str]) -> set[str]:
    """Return the registers that some instruction derives from such an address."""
    derived: set[str] = set()
    while True:
        reached = {name for item in program.instructions if _is_local(item, derived) for name in _targets(item)}
        if reached <= derived | mixed:
            return derived
        derived |= reached - mixed


def _is_local(item: Instruction, local_registers: set[str]) -> bool:
    if item.opcode == "cvta.local.u64":
        return True
    sources = [operand.name for operand in item.operands[1:] if isinstance(operand, Register)]
    return item.root in ("mov", "add") and not item.guard and len(local_registers.intersection(sources)) == 1


def _targets(item: Instruction) -> Iterator[str]:
    """Yield the registers that an instruction writes."""
    for operand in item.operands[:1]:
        for member in operand.items if isinstance(operand, OperandGroup) else (operand,):
            parts = (member.first, member.second) if isinstance(member, Pair) else (member,)
            yield from (part.name for part in parts if isinstance(part, Register))


def _with_local_space(item: Instruction, local_registers: set[str]) -> Instruction:
    address = next((operand for operand in item.operands if isinstance(operand, Address)), None)
    if item.root not in ("ld", "st") or address is None or not _SPACES.isdisjoint(item.modifiers):
        return item
    if not isinstance(address.base, Register) or address.base.name not in local_registers:
        return item
    return replace(item, opcode=".".join((item.root, "local", *item.modifiers)))


# The parts of PTX; text that none of them matches is refused.
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?', re.M)
_FUNCTION = re.compile(
    r"(?:\.(?:visible|extern|weak)\s+)*\.(entry|func)\s*(?:\((?P<results>[^)]*)\)\s*)?(?P<name>[\w$]+)\s*"
    r"(?:\((?P<parameters>[^)]*)\))?[^;{]*(?P<begin>[;{])",
    re.S,
)
_PARAMETER = re.compile(
    r"\s*\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)(?:\s+\.ptr\S*(?:\s+\.\w+)*(?:\s+\.align\s+\d+)?)?\s+([\w$]+)(?:\[(\d+)\])?\s*$"
)
_VARIABLE = re.compile(r"\.(shared|local)\s+(?:\.align\s+(\d+)\s+)?\.b(\d+)\s+([\w$]+)(?:\[(\d*)\])?")
_TABLE = re.compile(
    r"\.(?:global|const)\s+(?:\.align\s+\d+\s+)?\.[bu](\d+)\s+([\w$.]+)(?:\[(\d*)\])?\s*=\s*(\{[^}]*\}|[\w-]+)"
)
_REGISTERS = re.compile(r"\.reg\s*\.(\w+)\s+(.*)", re.S)
_RANGE = re.compile(r"(%?[\w$]+)<(\d+)>")
_GUARD = re.compile(r"@(!?)\s*(%?[\w$]+)\s+(.*)", re.S)
# Two colons belong to a name, as in `shared::cta`.
_LABEL = re.compile(r"([\w$]+)\s*:(?!:)")
# These end with their line, other directives with a semicolon.
_LINE = re.compile(r"\.(?:loc|file)\s")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)")
_ADDRESS = re.compile(r"\[\s*([%\w$.]+)\s*(?:\+\s*(-?\w+)\s*)?\]")
_NAME = re.compile(r"[A-Za-z_$][\w$]*$")
_NUMBER = re.compile(r"-?(0[fFdD][0-9a-fA-F]+|0[xX][0-9a-fA-F]+U?|\d+\.\d*([eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?)$")
_SPECIAL = re.compile(r"%(tid|ntid|ctaid|nctaid)\.[xyz]$|%(laneid|warpid|clock|clock64|globaltimer|smid|nsmid)$")
_IGNORED = (".file", ".loc", ".section", ".version", ".target", ".address_size", ".pragma")
"""Directives that do not change what a kernel computes."""


def parse(text: str) -> PtxProgram:
    """Parse a module that holds one kernel (raises NotKnown for anything it cannot parse)."""
    # Sections with debug information follow the code.
    text = _COMMENT.sub("", text).partition("\n\t.section")[0]
    text = text.replace("shared::cta", "shared")  # two names of one state space; Triton 3.8 writes the longer one
    bodies = [match for match in _FUNCTION.finditer(text) if match["begin"] == "{"]
    entries = [match for match in bodies if match[1] == "entry"]
    if len(entries) != 1:
        raise NotKnown(f"the emulator runs modules of one kernel, and this one has {len(entries)}")
    head = text[: bodies[0].start()]
    functions = {match["name"]: _body(match, head, text) for match in bodies if match[1] == "func"}
    return with_local(inlined(_body(entries[0], head, text), functions))


def _body(match: re.Match[str], head: str, text: str) -> PtxProgram:
    """Parse the body of a kernel or of a function."""
    results = tuple(item.name for item in _parameters(match["results"] or ""))
    reader = _Reader(match["name"], _parameters(match["parameters"] or ""), head, text[match.end() - 1 :])
    return replace(reader.program(), results=results)


def _parameters(text: str) -> list[Parameter]:
    parameters: list[Parameter] = []
    offset = 0
    for item in filter(str.strip, text.split(",")):
        match = _PARAMETER.match(item)
        if match is None:
            raise NotKnown(f"the emulator does not know the parameter `{item.strip()}`")
        size = int(match[4]) if match[4] else BITS[match[2]] // 8
        # The layout is ours: kernels address parameters by their names, and 8 bytes suit every type.
        step = max(8, int(match[1] or 8))
        offset = -(-offset // step) * step
        parameters.append(Parameter(match[3], match[2], offset, size))
        offset += size
    return parameters


class _Reader:
    """Reads a kernel's body in one pass."""

    def __init__(self, name: str, parameters: list[Parameter], head: str, tail: str) -> None:
        files = {
            int(number): f"{folder}/{file}" if file else folder for number, folder, file in _FILE.findall(head + tail)
        }
        self._program = PtxProgram(name, parameters, {}, [], {}, {}, 0, {}, 0, {}, files)
        self._dynamic_shared: list[tuple[str, int]] = []
        self._scopes: list[dict[str, str]] = []
        self._label = ""
        self._targets: dict[str, list[str]] = {}
        """The targets of each jump table, by the table's label."""
        self._scope_count = 0
        self._source_line: SourceLine | None = None
        self._read_head(head)
        for kind, text in _statements(tail):
            self._read(kind, text)

    def program(self) -> PtxProgram:
        """Return the program; memory that the launch adds comes after all variables of declared length."""
        program = self._program
        # `extern .shared x[]` has the length that the launch says, so nothing may come after it.
        for name, step in self._dynamic_shared:
            program.shared_bytes = program.shared[name] = -(-program.shared_bytes // step) * step
        return program

    def _read_head(self, head: str) -> None:
        for width, name, _, values in _TABLE.findall(head):
            self._program.constants[name] = _table(int(width) // 8, values.strip("{} "))
        for item in re.findall(r"^\s*(?:\.(?:extern|visible|weak)\s+)?(\.shared[^;]*);", head, re.M):
            self._declare(item)

    def _declare(self, text: str) -> None:
        """Allocate a variable of shared or local memory."""
        match = _VARIABLE.match(text)
        if match is None:
            raise NotKnown(f"the emulator does not know the declaration `{text}`")
        program, (space, align, width, name, count) = self._program, match.groups()
        size = int(width) // 8 * (1 if count is None else int(count or 0))
        used, offsets = (
            (program.shared_bytes, program.shared) if space == "shared" else (program.local_bytes, program.local)
        )
        step = int(align or int(width) // 8)
        # An array without a length: the launch adds its memory (`program`).
        if count == "":
            self._dynamic_shared.append((name, step))
        offsets[name] = -(-used // step) * step
        if space == "shared":
            program.shared_bytes = offsets[name] + size
        else:
            program.local_bytes = offsets[name] + size

    def _read(self, kind: str, text: str) -> None:
        if kind == "{":
            # Inline assembly puts its registers into braces; each statement may declare the same names again.
            self._scopes.append({})
            self._scope_count += 1
        elif kind == "}":
            self._scopes.pop()
        elif kind == "label":
            self._label = self._scoped(text, declare=False)
            self._program.labels[self._label] = len(self._program.instructions)
        elif text.startswith(".loc "):
            if match := _LOC.match(text):
                self._source_line = SourceLine(int(match[1]), int(match[2]), text)
        elif text.startswith(".reg"):
            self._read_registers(text)
        elif text.startswith((".shared", ".local")):
            self._declare(text)
        elif text.startswith(".param"):  # a variable that a call passes
            self._scoped(text.split()[-1].partition("[")[0], declare=True)
        # The label before it names the table, which `brx.idx` jumps through.
        elif text.startswith(".branchtargets"):
            self._targets[self._label] = _split(text.partition(" ")[2])
        elif text.startswith("."):
            if not text.startswith(_IGNORED):
                raise NotKnown(f"the emulator does not know the directive `{text}`")
        else:
            instruction = self._instruction(text)
            self._program.instructions += self._jump(instruction) if instruction.root == "brx" else [instruction]

    def _read_registers(self, text: str) -> None:
        match = _REGISTERS.match(text)
        if match is None or match[1] not in BITS:
            raise NotKnown(f"the emulator does not know the declaration `{text}`")
        for item in match[2].split(","):
            span = _RANGE.match(item.strip())
            names = [f"{span[1]}{number}" for number in range(int(span[2]) + 1)] if span else [item.strip()]
            for name in names:
                self._program.registers[self._scoped(name, declare=True)] = match[1]

    def _scoped(self, name: str, *, declare: bool) -> str:
        """Return the kernel-wide name of a register that a scope declares."""
        if declare:
            self._scopes[-1][name] = name if len(self._scopes) == 1 else f"{name}.{self._scope_count}"
            return self._scopes[-1][name]
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), name)

    def _instruction(self, text: str) -> Instruction:
        guard, is_negated, body = None, False, text
        if match := _GUARD.match(text):
            guard, is_negated, body = Register(self._scoped(match[2], declare=False)), match[1] == "!", match[3]
        opcode, _, operand_text = body.partition(" ")
        operands = tuple(self._operand(item, text) for item in _split(operand_text))
        return Instruction(opcode, operands, guard, is_negated, self._source_line, text)

    def _jump(self, item: Instruction) -> list[Instruction]:
        """Expand a jump through a table to a sequence of branches; an index beyond the table traps."""
        index, table = item.operands if len(item.operands) == 2 else (None, None)
        if (
            item.opcode not in ("brx.idx", "brx.idx.uni")
            or item.guard
            or not isinstance(table, Symbol)
            or index is None
        ):
            raise item.unknown()
        # PTX ISA, "brx.idx": an index beyond the table is undefined, so it stops the launch.
        is_chosen = Register(f"%jump{len(self._program.registers)}")
        self._program.registers[is_chosen.name] = "pred"
        branches = []
        for number, label in enumerate(self._targets.get(table.name, [])):
            branches.append(replace(item, opcode="setp.eq.u32", operands=(is_chosen, index, Immediate(str(number)))))
            branches.append(replace(item, opcode="bra", operands=(self._plain(label, item.text),), guard=is_chosen))
        return [*branches, replace(item, opcode="trap", operands=())]

    def _operand(self, text: str, whole: str) -> Operand:
        if text == "_":
            return Unused()
        if text.startswith(("{", "(")):
            return OperandGroup(tuple(self._operand(item, whole) for item in _split(text[1:-1])))
        if text.startswith("["):
            return self._address(text, whole)
        if "|" in text:
            first, second = (self._register(item.strip(), whole) for item in text.split("|"))
            return Pair(first, second)
        if text.startswith("!"):
            return Not(self._register(text[1:].strip(), whole))
        return self._plain(text, whole)

    def _plain(self, text: str, whole: str) -> Register | Special | Immediate | Symbol:
        if text in ("true", "false") or _NUMBER.match(text):
            return Immediate(text)
        if _SPECIAL.match(text):
            return Special(text)
        name = self._scoped(text, declare=False)
        if name in self._program.registers:
            return Register(name)
        if _NAME.match(text):
            return Symbol(name)
        raise NotKnown(f"the emulator does not know the operand `{text}` in `{whole}`")

    def _register(self, text: str, whole: str) -> Register:
        operand = self._plain(text, whole)
        if not isinstance(operand, Register):
            raise NotKnown(f"the emulator expects a register in place of `{text}` in `{whole}`")
        return operand

    def _address(self, text: str, whole: str) -> Address | OperandGroup:
        match = _ADDRESS.fullmatch(text)
        if match is None and "," in text:  # of a tile (TMA): a descriptor and coordinates
            return OperandGroup(tuple(self._operand(item, whole) for item in _split(text[1:-1])))
        if match is None:
            raise NotKnown(f"the emulator does not know the address `{text}` in `{whole}`")
        base = self._plain(match[1], whole)
        if isinstance(base, Special):
            raise NotKnown(f"the emulator does not know the address `{text}` in `{whole}`")
        return Address(base, int(match[2] or "0", 0))


def _statements(body: str) -> Iterator[tuple[str, str]]:
    """Yield braces of scopes, labels and statements of a body, up to the end of its outermost scope."""
    depth, position = 0, 0
    while position < len(body):
        if body[position].isspace():
            position += 1
        elif body[position] in "{}":
            depth += 1 if body[position] == "{" else -1
            yield body[position], ""
            position += 1
            if not depth:
                return
        elif label := _LABEL.match(body, position):
            yield "label", label[1]
            position = label.end()
        elif _LINE.match(body, position):  # the only directives that end with their line
            end = body.find("\n", position)
            yield "statement", " ".join(body[position:end].split())
            position = end
        else:
            end = body.index(";", position)
            if statement := " ".join(body[position:end].split()):
                yield "statement", statement
            position = end + 1


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    pieces, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        # Commas within an address or a group belong to one operand.
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and not depth:
            pieces.append(text[start:position].strip())
            start = position + 1
    last = text[start:].strip()
    return [*pieces, last] if last else pieces


def _table(width: int, values: str) -> bytes:
    mask = (1 << 8 * width) - 1
    return b"".join(
        (int(item.strip(), 0) & mask).to_bytes(width, "little") for item in values.split(",") if item.strip()
    )
