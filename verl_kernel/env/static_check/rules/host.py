# SPDX-License-Identifier: Apache-2.0
"""Rules on host code: its use of torch, and the state that it may keep."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from string import Formatter

import torch

from verl_kernel.env.static_check.allowlist import ENVIRONMENT, INFERENCE, OPEN_MODULES, SPECIAL_ATTRIBUTES, refusal
from verl_kernel.env.static_check.names import Function, ParsedSource, Violation, at, head, is_special, root
from verl_kernel.env.static_check.scopes import FUNCTIONS

# Allowed uses of a tensor's address in host code: a check of its alignment, and a table of addresses for a kernel.


MAX_ALIGNMENT = 1024


def may_be_taken(program: ParsedSource, node: ast.Attribute) -> bool:
    """Whether `node`, an attribute `data_ptr`, is used in a way that tells host code no address."""
    call = program.parents[id(node)]
    if not isinstance(call, ast.Call) or call.func is not node or call.args or call.keywords:
        return False
    return _only_alignment(program, call) or _only_in_table(program, call)


def _only_in_table(program: ParsedSource, call: ast.Call) -> bool:
    """Whether an address only goes to `torch.tensor([x.data_ptr(), ...])`, directly or through a list for that only."""
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
    """Whether a local name only means lists that are filled and passed to `torch.tensor`."""
    key = program.key(name.id, name)
    if program.is_global(name.id, name) or key in program.parameters:
        return False
    return program.once("table", key, lambda: all(_serves(program, use) for use in program.occurrences(name)))


def _serves(program: ParsedSource, use: ast.Name) -> bool:
    """Whether this use binds a list, appends to it, or passes it to `torch.tensor`."""
    parent = program.parents[id(use)]
    if not isinstance(use.ctx, ast.Load):
        return isinstance(_bound_to(program, use), ast.List | ast.ListComp)
    if isinstance(parent, ast.Attribute):
        call = program.parents[id(parent)]
        return parent.attr == "append" and isinstance(call, ast.Call) and call.func is parent
    return _makes_tensor(program, parent, use)


def _bound_to(program: ParsedSource, target: ast.Name) -> ast.AST | None:
    """Return the value that a statement binds to a name, or adds to it; None if the text does not show it."""
    parent = program.parents[id(target)]
    if isinstance(parent, ast.Assign | ast.AugAssign):
        return parent.value
    statement = program.parents[id(parent)]
    if not isinstance(parent, ast.Tuple) or not isinstance(statement, ast.Assign):
        return None
    values = statement.value.elts if isinstance(statement.value, ast.Tuple) else []
    return values[parent.elts.index(target)] if len(values) == len(parent.elts) else None


def _only_alignment(program: ParsedSource, call: ast.Call) -> bool:
    """Whether an address is used as in `x.data_ptr() % 16`, `x.data_ptr() & 15`, `x.data_ptr() == y.data_ptr()`."""
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


_COPY = "data may leave a tensor through kernels and torch ops only"
_HOOK = "hooks run where no clock looks: compute in forward"
FORBIDDEN: dict[str, str] = {
    **dict.fromkeys(("numpy", "tolist", "apply_", "map_", "map2_"), f"computing on the host is not allowed: {_COPY}"),
    **dict.fromkeys(("storage", "untyped_storage", "typed_storage", "set_", "to_dlpack", "share_memory_"), _COPY),
    **dict.fromkeys(("grad_fn", "next_functions", "backward", "retain_grad"), "autograd is not part of a forward"),
    **dict.fromkeys(
        "mro gi_frame gi_code cr_frame ag_frame tb_frame f_back f_globals f_locals f_builtins f_code tb_next "
        "func_globals".split(),
        "the interpreter stays closed",
    ),
    "is_inference": INFERENCE,
    **dict.fromkeys(("as_subclass", "manual_seed", "record_stream"), "no kernel needs it"),
    **dict.fromkeys(("add_pre_run_hook", "cache_hook", "rewrite", "device_caches"), "launch with kernel[grid](...)"),
}
"""Attributes that host code may not use on any object, each with the reason."""
_REGISTER = frozenset("register_buffer register_parameter register_module".split())
_TENSOR_PRIVATE = frozenset(name for name in dir(torch.Tensor) if name.startswith("_"))
_DEFAULTS = "collections.defaultdict"
_PLAIN_FACTORIES = frozenset("int float list dict set tuple str bool".split())
READ_IN_FULL = frozenset("data_ptr fn run warmup format format_map".split())
"""Attributes with restricted uses, so every use must be visible in the text."""
_DEPTH = 2
"""Depth to which Python itself evaluates format fields within fields."""
_ARITHMETIC = frozenset(
    f"__{name}__"
    for name in "add radd sub rsub mul rmul truediv floordiv mod neg lshift rshift and or xor invert "
    "lt le gt ge eq ne".split()
)
"""Operators that some authors of kernels call by their methods."""
KERNEL_ATTRIBUTES = frozenset(("best_config", "configs"))
_MUTATORS = frozenset(
    "append extend insert update setdefault add pop popitem clear remove discard sort reverse appendleft extendleft "
    "popleft rotate move_to_end subtract".split()
)
_CACHES = frozenset(("functools.lru_cache", "functools.cache"))
_QUERIES = tuple(
    "torch.cuda. torch.version. torch.finfo torch.iinfo triton.cdiv triton.next_power_of_2 triton.runtime.driver. "
    "torch.device torch.Size".split()
)


def attributes(program: ParsedSource) -> Iterator[Violation]:
    """Yield special attributes, accesses that take data out of tensors, and disallowed members of imported modules."""
    for node in program.nodes:
        if isinstance(node, ast.Attribute):
            if reason := _attribute(program, node, node.attr):
                yield at(node, "attribute", reason)
        elif isinstance(node, ast.MatchClass):
            for name in node.kwd_attrs:
                if name.startswith("_") or name in READ_IN_FULL or name_reason(name):
                    yield at(node, "attribute", f"attribute {name} is not allowed")
        if isinstance(node, ast.Attribute | ast.Name):
            for reason in filter(None, map(refusal, sorted(program.paths(node)))):
                yield at(node, "attribute", reason)


def _attribute(program: ParsedSource, node: ast.Attribute, name: str) -> str:
    on_self = isinstance(node.value, ast.Name) and node.value.id == "self"
    if is_special(name) and name not in SPECIAL_ATTRIBUTES | _ARITHMETIC and not _names_its_class(program, node):
        return f"attribute {name} is not allowed"
    if name in _TENSOR_PRIVATE and not on_self and not is_special(name):
        return f"{name} is private to torch"
    if name == "warmup" and _only_compiles(program, node):
        return ""
    if program.kernels_named(node.value) and name not in KERNEL_ATTRIBUTES:
        return f"{name} of a kernel is not allowed: launch with kernel[grid](...)"
    if name in ("fn", "run", "warmup") and not on_self and isinstance(node.ctx, ast.Load):
        return f"{name} of a kernel is not allowed: launch with kernel[grid](...)"
    if name == "data_ptr" and not may_be_taken(program, node):
        return "data_ptr may only be compared, taken modulo an alignment, or put into a list for torch.tensor"
    if name in ("format", "format_map") and not _is_plain_format(program, node):
        return f"{name} reads attributes by their names in a text: write an f-string"
    return "" if program.registers(node) else name_reason(name)


def _only_compiles(program: ParsedSource, node: ast.Attribute) -> bool:
    """Whether a node is the `kernel.warmup` of a statement `kernel.warmup(...)`, which compiles and launches nothing.

    What it returns is a way to launch that no recorder sees, so nothing may use that.
    """
    call = program.parents[id(node)]
    is_called = isinstance(call, ast.Call) and call.func is node
    return program.kernels_named(node.value) and is_called and isinstance(program.parents[id(call)], ast.Expr)


def _names_its_class(program: ParsedSource, node: ast.Attribute) -> bool:
    """Whether a node is the `x.__class__` of `x.__class__.__name__`, which is a text."""
    whole = program.parents[id(node)]
    read = isinstance(whole, ast.Attribute) and whole.value is node and isinstance(whole.ctx, ast.Load)
    return node.attr == "__class__" and read and whole.attr == "__name__"  # type: ignore[attr-defined]


def _is_plain_format(program: ParsedSource, node: ast.Attribute) -> bool:
    """Whether a literal format string inserts only values themselves, not attributes or items of them."""
    text, parent = node.value, program.parents[id(node)]
    if not (isinstance(parent, ast.Call) and parent.func is node and node.attr == "format"):
        return False
    return isinstance(text, ast.Constant) and isinstance(text.value, str) and not _reads_inside(text.value)


def _reads_inside(text: str, depth: int = 0) -> bool:
    """Whether a field name in a format string has a dot or a bracket; a string that cannot be parsed counts too."""
    if depth > _DEPTH:
        return True
    try:
        fields = list(Formatter().parse(text))
    except ValueError:
        return True
    return any(set(name or "") & {".", "["} or _reads_inside(spec or "", depth + 1) for _, name, spec, _ in fields)


def name_reason(name: str) -> str:
    """Return why no attribute of this name may be used; an empty text if it may."""
    if name in FORBIDDEN:
        return f"{name} is not allowed: {FORBIDDEN[name]}"
    if name.startswith(("register_", "_register")) and name not in _REGISTER:
        return f"{name} is not allowed: {_HOOK}"
    return ""


def modules(program: ParsedSource) -> Iterator[Violation]:
    """Yield modules used as values instead of `module.name`, because their later uses could not be checked."""
    for node in program.every(ast.Name, ast.Attribute):
        if isinstance(node.ctx, ast.Load):
            opened = program.paths(node) & OPEN_MODULES
            if opened and not _names_something(program, node):
                yield at(node, "module", f"module {sorted(opened)[0]} must not be passed about: name what you use")


def environment(program: ParsedSource) -> Iterator[Violation]:
    """Yield uses of `os.environ` other than `.get("X")`, `["X"]` and `"X" in`."""
    for node in program.every(ast.Name, ast.Attribute) if program.uses(ENVIRONMENT) else []:
        if ENVIRONMENT in program.paths(node):
            parent = program.parents[id(node)]
            is_asked = isinstance(parent, ast.Compare) and all(isinstance(op, ast.In | ast.NotIn) for op in parent.ops)
            if (
                isinstance(node.ctx, ast.Load)
                and not is_asked
                and not isinstance(parent, ast.Attribute | ast.Subscript)
            ):
                yield at(node, "module", f"{ENVIRONMENT} must not be passed about: read a variable with .get")


def factories(program: ParsedSource) -> Iterator[Violation]:
    """Yield `defaultdict` with other factories than plain types: they would be called where no rule sees a call."""
    for node in program.every(ast.Name, ast.Attribute) if program.uses(_DEFAULTS) else []:
        if _DEFAULTS not in program.paths(node):
            continue
        parent = program.parents[id(node)]
        if isinstance(parent, ast.Call) and parent.func is node:
            first = parent.args[0] if parent.args else None
            plain = isinstance(first, ast.Name) and program.is_builtin(first) and first.id in _PLAIN_FACTORIES
            if (first is not None and not plain) or any(item.arg == "default_factory" for item in parent.keywords):
                yield at(node, "state", "defaultdict may make int, float, list, dict, set or tuple")
        elif isinstance(node.ctx, ast.Load) and not isinstance(parent, ast.Attribute) and program.is_evaluated(node):
            yield at(node, "state", "defaultdict must be called where it is named")


def _names_something(program: ParsedSource, node: ast.AST) -> bool:
    parent = program.parents[id(node)]
    if isinstance(parent, ast.Attribute):
        return True
    if isinstance(parent, ast.Assign):
        in_class = isinstance(program.block(node), ast.ClassDef)
        return not in_class and all(isinstance(target, ast.Name) for target in parent.targets)
    if isinstance(parent, ast.Call):  # getattr(tl, "exp"), hasattr(tl, "exp"): the name is checked elsewhere
        return isinstance(parent.func, ast.Name) and parent.func.id in ("getattr", "hasattr")
    return False


def containers(program: ParsedSource) -> Iterator[Violation]:
    """Yield calls in functions that change containers which outlive the call outside the model."""
    for node in program.every(ast.Call):
        if not isinstance(node.func, ast.Attribute):
            continue
        base = root(node.func.value)
        if node.func.attr not in _MUTATORS or not isinstance(base, ast.Name) or program.paths(base):
            continue
        in_function = program.block(node) is not program.tree
        if in_function and (program.is_global(base.id, base) or _is_default(program, base)):
            yield at(node, "state", f"{base.id} is state outside the model, which functions must not change")


def _is_default(program: ParsedSource, name: ast.Name) -> bool:
    """Whether a name is a parameter with a container as default, which lives as long as the function."""
    scope = program.key(name.id, name)[0].node
    if not isinstance(scope, FUNCTIONS):
        return False
    defaults = program.once("defaults", id(scope), lambda: _defaults(scope))
    return isinstance(defaults.get(name.id), ast.Dict | ast.List | ast.Set | ast.Call)


def _defaults(function: Function) -> dict[str, ast.expr | None]:
    positional = [*function.args.posonlyargs, *function.args.args]
    last = positional[len(positional) - len(function.args.defaults) :]
    named = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    pairs = [*zip(last, function.args.defaults, strict=True), *named]
    return {item.arg: default for item, default in pairs}


def default_stores(program: ParsedSource) -> Iterator[Violation]:
    """Yield stores to default values, as in `def f(x, seen={}): seen[x] = ...`, which hide state."""
    for node in program.every(ast.Subscript):
        if not isinstance(node.ctx, ast.Load):
            base = root(node)
            if isinstance(base, ast.Name) and _is_default(program, base):
                yield at(node, "state", f"{base.id} outlives the call: functions must not change their defaults")


def caches(program: ParsedSource) -> Iterator[Violation]:
    """Yield uses of `lru_cache` and `cache` other than on functions of plain numbers."""
    decorated = {id(head(item)): node for node in program.nodes for item in getattr(node, "decorator_list", [])}
    uses = [
        node
        for node in (program.every(ast.Name, ast.Attribute) if program.uses("functools.") else [])
        if program.paths(node) & _CACHES and not isinstance(program.parents[id(node)], ast.Attribute)
    ]
    handling = _handling_tensors(program) if uses else set()
    for node in uses:
        function = decorated.get(id(node))
        if function is None:
            yield at(node, "cache", "a cache may only decorate a function")
        elif id(function) in handling:
            yield at(node, "cache", "a cache of tensors is not allowed: compute them anew")


def _handling_tensors(program: ParsedSource) -> set[int]:
    """Return the ids of functions that mention tensors, launch or compute, also in nested or called functions."""
    calls = program.every(ast.Call)
    launching = _around(program, (node for node in calls if _calls_device(program, node)))
    names = {node.name for node in program.nodes if id(node) in launching and isinstance(node, ast.FunctionDef)}
    typed = program.every(ast.Attribute, ast.Name)
    mentions = (node for node in typed if any(path.startswith("torch.Tensor") for path in program.paths(node)))
    handling = (
        node for node in calls if getattr(node.func, "id", "") in names or _computes_on_parameter(program, node)
    )
    return launching | _around(program, mentions) | _around(program, handling)


def _around(program: ParsedSource, nodes: Iterable[ast.AST]) -> set[int]:
    """Return the ids of some nodes and all their ancestors, each visited once."""
    visited: set[int] = set()
    for node in nodes:
        above: ast.AST | None = node
        while above is not None and id(above) not in visited:
            visited.add(id(above))
            above = program.parents.get(id(above))
    return visited


def _calls_device(program: ParsedSource, call: ast.Call) -> bool:
    """Whether a call launches or computes; queries of sizes and properties do not."""
    paths = program.paths(call.func)
    only_queries = all(path.startswith(_QUERIES) for path in paths if path.startswith(("torch.", "triton.")))
    return isinstance(call.func, ast.Subscript) or not only_queries


def _computes_on_parameter(program: ParsedSource, call: ast.Call) -> bool:
    """Whether a call is a method of tensors (`x.sum()`) on a parameter."""
    if not isinstance(call.func, ast.Attribute) or not hasattr(torch.Tensor, call.func.attr):
        return False
    base = root(call.func.value)
    return isinstance(base, ast.Name) and program.key(base.id, base) in program.parameters
