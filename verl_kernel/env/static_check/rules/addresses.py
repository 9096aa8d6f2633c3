# SPDX-License-Identifier: Apache-2.0
"""What host code may do with a tensor's address: check how it is aligned, and hand it to a kernel in a table."""

from __future__ import annotations

import ast

from verl_kernel.env.static_check.names import ParsedSource

MAX_ALIGNMENT = 1024


def may_be_taken(program: ParsedSource, node: ast.Attribute) -> bool:
    """Whether `node`, an attribute `data_ptr`, is used so that no host code learns an address."""
    call = program.parents[id(node)]
    if not isinstance(call, ast.Call) or call.func is not node or call.args or call.keywords:
        return False
    return _only_alignment(program, call) or _only_in_table(program, call)


def _only_in_table(program: ParsedSource, call: ast.Call) -> bool:
    """`torch.tensor([x.data_ptr(), ...])`, or the same of a list that is used for nothing else."""
    use = program.parents[id(call)]
    if isinstance(use, ast.Call) and isinstance(use.func, ast.Attribute) and use.func.attr == "append":
        return isinstance(use.func.value, ast.Name) and _is_table(program, use.func.value)
    is_item = isinstance(use, ast.List) or (isinstance(use, ast.ListComp) and use.elt is call)
    return is_item and _goes_to_table(program, use)


def _goes_to_table(program: ParsedSource, listed: ast.AST) -> bool:
    use = program.parents[id(listed)]
    if isinstance(use, ast.Assign | ast.AugAssign):
        targets = use.targets if isinstance(use, ast.Assign) else [use.target]
        return all(isinstance(target, ast.Name) and _is_table(program, target) for target in targets)
    return _makes_tensor(program, use, listed)


def _makes_tensor(program: ParsedSource, call: ast.AST, first: ast.AST) -> bool:
    return isinstance(call, ast.Call) and call.args[:1] == [first] and program.paths(call.func) == {"torch.tensor"}


def _is_table(program: ParsedSource, name: ast.Name) -> bool:
    """Whether a local name stands for lists that are filled and handed to `torch.tensor`, and for nothing else."""
    key = program.key(name.id, name)
    if program.is_global(name.id, name) or key in program.parameters:
        return False
    return program.once("table", key, lambda: all(_serves(program, use) for use in program.occurrences(name)))


def _serves(program: ParsedSource, use: ast.Name) -> bool:
    """Whether it is filled, measured or handed over at this place."""
    parent = program.parents[id(use)]
    if not isinstance(use.ctx, ast.Load):
        return isinstance(_bound_to(program, use), ast.List | ast.ListComp)
    if isinstance(parent, ast.Attribute):
        call = program.parents[id(parent)]
        return parent.attr == "append" and isinstance(call, ast.Call) and call.func is parent
    return _makes_tensor(program, parent, use)


def _bound_to(program: ParsedSource, target: ast.Name) -> ast.AST | None:
    """What a statement binds a name to, or adds to it; None where that is not written out."""
    parent = program.parents[id(target)]
    if isinstance(parent, ast.Assign | ast.AugAssign):
        return parent.value
    statement = program.parents[id(parent)]
    if not isinstance(parent, ast.Tuple) or not isinstance(statement, ast.Assign):
        return None
    values = statement.value.elts if isinstance(statement.value, ast.Tuple) else []
    return values[parent.elts.index(target)] if len(values) == len(parent.elts) else None


def _only_alignment(program: ParsedSource, call: ast.Call) -> bool:
    """`x.data_ptr() % 16`, `x.data_ptr() & 15`, `x.data_ptr() == y.data_ptr()`."""
    use = program.parents.get(id(call))
    if isinstance(use, ast.BinOp) and isinstance(use.op, ast.Mod | ast.BitAnd):
        return use.left is call and _is_alignment(program, use.right)
    return isinstance(use, ast.Compare) and program.once("addresses", id(use), lambda: _compares_addresses(use))


def _is_alignment(program: ParsedSource, value: ast.AST) -> bool:
    if isinstance(value, ast.Name) and program.is_global(value.id, value):
        values = program.values(value.id, value)
        if len(values) != 1 or program.stores[program.key(value.id, value)] != 1:
            return False
        value = values[0]
    return isinstance(value, ast.Constant) and type(value.value) is int and 0 < value.value <= MAX_ALIGNMENT


def _compares_addresses(node: ast.Compare) -> bool:
    sides = (node.left, *node.comparators)
    called = [side.func for side in sides if isinstance(side, ast.Call)]
    addresses = [item for item in called if isinstance(item, ast.Attribute) and item.attr == "data_ptr"]
    return len(addresses) == len(sides) and all(isinstance(item, ast.Eq | ast.NotEq) for item in node.ops)
