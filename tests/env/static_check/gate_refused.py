# SPDX-License-Identifier: Apache-2.0
"""Ways around the static gate, by the rule that closes them; they stand between HEADER and ENTRY of `gate_programs`.

Whole programs with more of them are in tests/exploits/attacks.
"""


def _pieces(text: str) -> list[str]:
    """Return each line before the first line of dashes, and what stands between lines of dashes."""
    lines, *others = text.removesuffix("\n").split("\n---\n")
    return [*lines.removeprefix("\n").splitlines(), *others]


def _each(form: str, words: str) -> list[str]:
    """Return a piece for each word, which stands in the place of NAME."""
    return [form.replace("NAME", word) for word in words.split()]


def _kernel(parts: list[str]) -> list[str]:
    """Return pieces that end in the decorators of a kernel, and the kernel."""
    return [f"{part}\n@triton.jit\ndef k(x, B: tl.constexpr): tl.store(x, B)" for part in parts]


_REFUSED: dict[str, list[str]] = {}
_REFUSED["import"] = _pieces("""
import sys; used = sys
import subprocess, math
import time as other
import importlib.machinery
import ctypes as c
import numpy.linalg
import os.path
import logging.handlers
import torch.utils
import torch.utils.cpp_extension
import math as __builtins__
from math import *
from triton.language import *
from . import secrets
from .math import sqrt
from ..torch import nn as n2
from torch import _C
from torch import ops
from torch import nn as n2, os
from torch import compile as c
from torch import is_inference_mode_enabled
from torch.utils.cpp_extension import load_inline
from torch.nn.modules import module
from torch.nn.functional import importlib
from numpy import asarray
from os import execv
from triton.runtime import interpreter
from triton.runtime.driver import set_active
from triton.language import semantic
---
try: from flash_attn import *
except ImportError: pass
---
try: from .flash_attn import attend
except ImportError: pass
---
try: import flash_attn, ctypes
except ImportError: pass
---
try: pass
except ImportError: import flash_attn
---
import flash_attn
---
from importlib.util import find_spec
found = find_spec("json")
---
from importlib.util import find_spec
find_spec("json").loader.load_module("json")
---
from importlib.util import find_spec
here = find_spec("torch.testing._internal") is not None
---
from importlib.util import find_spec
here = find_spec(f"{helper}") is not None
---
from importlib.util import find_spec as look
here = look("flash_attn") is not None
---
from importlib import import_module
---
from importlib.util import module_from_spec
---
from torch.nn import Module
Module = type(torch.empty(1))
class Evil(Module): pass
---
from torch import no_grad
def no_grad(): return helper
---
def f(x):
    import math
    math = x
""")
_REFUSED["builtin"] = _each(
    "NAME(3)", "id hash input help memoryview bytearray quit breakpoint exec open __import__"
) + _pieces("""
exec
run = eval
globals()['x'] = 1
def f(): return vars()
class A: f = open
g = lambda: compile('1', 'x', 'eval')
f = open; open = 3
type("X", (object,), {})
functools.partial(type, "X")
t = type
super
s = super()
def f(type=type): return type("X", (object,), {})
class C: kind: type
def f(x): return isinstance(type, x)
def f(): return [open for y in [1]]
with open("x"): pass
---
def f(x):
    match x:
        case {**getattr}: pass
    return lambda: open
""")
_REFUSED["name"] = _pieces("""
__builtins__['open']
x = __loader__
x = __file__
__name__ = "__main__"
""")
_REFUSED["unbound"] = _pieces("""
def f(x): return interpreter_semantic
class A: interpreter_semantic = interpreter_semantic
for semantic in [semantic]: pass
print([interpreter_semantic for y in [1]])
---
def f():
    class A: interpreter_semantic = interpreter_semantic
---
@triton.jit
def k(x): tl.store(x, interpreter_semantic)
""")
_REFUSED["getattr"] = _pieces("""
getattr(torch, '_C')
getattr(torch, 'ops')
getattr(torch, 'o' + 'ps')
getattr(math, 3)
getattr(math, b"pi")
g = getattr
def f(x): getattr(x, "_version")
def f(x): return hasattr(x, "__dict__")
setattr(torch, 'allclose', None)
s = setattr
def f(x): setattr(x, "w1", 1)
def f(x): return getattr(kern, "params")
def f(x): return getattr(3, "tolist")()
def f(x): return getattr(x, f"__{x}__")
def f(x): return getattr(x, f"_{x}")
def f(x): return getattr(x, "_ver" + "sion")
def f(x): return getattr(x, f"to{x}")
def f(x): return getattr(x, f"map{2}_")
def f(x): return getattr(x, "reg{}".format(x))
def f(x): return hasattr(x, f"{x}")
def f(x): return getattr(torch, f"c{x}")
def f(x): return getattr(kern, f"f{x}")
def f(x): return [getattr(x, n) for n in ("a", x)]
def f(x, n="a"): return getattr(x, n)
getattr("{0.a}", "format")(helper)
getattr(str, "format_map")
---
def f(x):
    for n in ("a", "b"): pass
    match x:
        case n: pass
    return getattr(x, n)
---
NAMES = ["a"]
NAMES.append("__class__")
def f(x): return [getattr(x, n) for n in NAMES]
functools.partial(getattr, torch)("ops")
functools.reduce(getattr, ["ops"], torch)
def f(x): return [getattr(torch, "o" + "ps") for y in x] + [getattr for getattr in x]
from os import environ; getattr(environ, "update")
---
class A:
    if 0: getattr = 1
    found = getattr(torch, "o" + "ps")
""")
_REFUSED["getattr"] += ["class N(nn.Module):\n    def f(self, n: int): setattr(self, f'l{n}', 1)"]
_REFUSED["getattr"] += [
    f"class N(nn.Module):\n    def f(self, n): {text}"
    for text in _pieces("""
setattr(self, n, 1)
setattr(self, "forward", helper)
setattr(self, f"forw{n}", 1)
setattr(self, f"{n}", 1)
setattr(self, f"_{n}", 1)
setattr(self, f"__{n}", 1)
setattr(self, "_parameters", 1)
setattr(self, "_para" + n, 1)
setattr(self, "train{}".format(n), 1)
setattr(self, "tr%s" % n, 1)
setattr(self, str(n), 1)
setattr(self, f"l{n}", 1)
setattr(self, f"l{n * 1}", 1)
setattr(self, f"l{[k for k in n][0]}", 1)
[setattr(self, f"l{k}", 1) for k in n]
setattr(self, f"w{n}", lambda: 1)
setattr(self, f"w{n}", helper)
setattr(self.linear, f"w{n}", 1)
setattr(self, *n)
setattr(nn.Module, f"w{n}", 1)
""")
]
_REFUSED["attribute"] = """
F.importlib.import_module F.np.sum F.torch.os dataclasses.make_dataclass dataclasses.sys
logging.basicConfig math.__spec__ nn.Module.register_forward_hook nn.modules.module.register_module_forward_hook
operator.attrgetter operator.methodcaller os.environ.update os.system typing.get_type_hints typing.sys
warnings.sys tl.core.builtins tl.math.core tl.semantic torch.DisableTorchFunction torch.FloatStorage torch._C
torch._C._VariableFunctions torch.accelerator.set_device_index torch.backends.cudnn.flags torch.compile
torch.cuda.CUDAGraph torch.cuda.Event torch.cuda.Stream torch.cuda.graph torch.cuda.stream torch.default_generator
torch.distributions torch.from_dlpack torch.from_file torch.from_numpy torch.frombuffer torch.func.grad torch.fx.wrap
torch.is_inference torch.is_inference_mode_enabled torch.jit.script torch.load torch.manual_seed
torch.nested torch.ops.aten.mm torch.overrides torch.save torch.compiler.compile
torch.nn.utils.parametrize torch.nn.utils.stateless torch.nn.utils.prune collections.abc.sys tl.standard.core
tl.core.knobs
torch.set_default_dtype torch.set_rng_state torch.sparse.mm
torch.utils.data torch.vmap triton.compiler triton.knobs triton.runtime.driver.set_active
triton.runtime.interpreter triton.runtime.jit triton.testing
""".split()
_REFUSED["attribute"] += _each("def f(x): x.NAME()", """
numpy tolist apply_ untyped_storage register_hook register_forward_hook grad_fn is_inference as_subclass _base __dict__
__class__ __globals__ fn data_ptr
""")  # fmt: skip
_REFUSED["attribute"] += _pieces("""
import copy; copy.dispatch_table
import contextlib; contextlib.contextmanager
import einops; einops.layers
from packaging import version; version.re
def f(x): k = x.data_ptr()
def f(x, c): return c[x.data_ptr()]
def f(x): return x.data_ptr() % 1125899906842624
def f(x, c): return x.data_ptr() % c
def f(x): return x.data_ptr() & -1
def f(x): return x.data_ptr() < 140000000000000
def f(x, k): return x.data_ptr() == k
def f(x, y): return x.data_ptr() == y.data_ptr() == 7
def f(x): return 16 % x.data_ptr()
def f(x): return x.data_ptr(x.data_ptr() % 16)
def f(x): a = [x.data_ptr()]; return a[0]
def f(x): return torch.tensor(sorted([x.data_ptr()]))
def f(x): return [y for y in [x.data_ptr()]]
def f(x): return torch.tensor([x.data_ptr() + 1])
def f(x): return x.numel([x.data_ptr()])
---
MOD = 16
MOD = 1 << 60
def f(x): return x.data_ptr() % MOD
---
def f(x):
    for MOD in [1 << 60]: return x.data_ptr() % MOD
---
def f(x):
    a = []
    a.append(x.data_ptr())
    return max(a)
---
def f(x, a):
    a.append(x.data_ptr())
    return torch.tensor(a)
---
TABLE = []
def f(x):
    TABLE.append(x.data_ptr())
    return torch.tensor(TABLE)
---
def f(x):
    a = [y.data_ptr() for y in x]
    b = a
    return torch.tensor(a)
---
def f(x, memo):
    a = []
    for a in memo: a.append(x.data_ptr())
    return torch.tensor(a)
---
def f(x):
    a = [x.data_ptr()]
    return lambda: a
""")
_REFUSED["attribute"] += _pieces(r"""
"{0.__globals__}".format(helper)
"{0.a[b]}".format(helper)
"{:{0.a}}".format(helper)
"{0[a]:{1}}".format({}, 2)
str.format("{0.a}", helper)
t = "{0.a}"; t.format(helper)
"".join(["{0", ".a}"]).format(helper)
("{0" + ".a}").format(helper)
"{a.b}".format_map({"a": helper})
"{}".format_map({})
write = str.format
list(map("{0.a}".format, [helper]))
"{".format(helper)
"{:{:{:{:}}}}".format(1)
""")
_REFUSED["attribute"] += _pieces("""
().__class__.__bases__
np.array([1.0])
import importlib; importlib.import_module("os")
import importlib.util; importlib.import_module("os")
import importlib.util; importlib.util.module_from_spec(1)
kern.fn
kern.run(1, grid=(1,), warmup=False)
made = kern.warmup(1, grid=(1,))
kern.warmup(1, grid=(1,))[(1,)](1)
later = kern.warmup
torch.warmup(kern)
helper.warmup(1, grid=(1,))
kern.__class__
torch.Tensor.tolist(1)
helper.__class__.__mro__
helper.__class__.__name__ = "a"
helper.__class__
t = torch; t.compile
c, d = torch.cuda, 1; c.Stream()
(k := torch.utils); k.dlpack
kern.fn = helper
torch.backends.mkldnn.enabled = False
warnings.showwarning = helper
---
import torch as _A__x
__x = 1
class A:
    def f(self): return __x.ops
""") + _each("match helper:\n    case object(NAME=c): pass", "__class__ tolist format fn data_ptr")
_REFUSED["module"] = _pieces("""
m = [torch][0]
for m in (torch,): m.load
def f(m=torch): return m.load
f = lambda m: m.load; f(torch)
[m.load for m in [torch]]
(m := torch.nn).modules
d = {"t": torch}
class A: t = torch
x = torch if 1 else math
torch.accelerator
helper(os.environ)
env = os.environ; env.setdefault("A", "1")
""")
_REFUSED["assignment"] = _pieces("""
torch.allclose = lambda *a: True
torch.nn.Module.forward = None
torch.Tensor.add = helper
tl.load = None
logging.Logger.debug = helper
triton.runtime.driver.active = 1
E = torch.cuda.Event; E.elapsed_time = lambda *a: 1e-3
n = 7 // 2; torch.cuda.Event.elapsed_time = 1
del torch.randn
for torch.x in [1]: pass
torch.x += 1
with helper(1) as torch.y: pass
math.table['x'] = 1
os.environ["TRITON_INTERPRET"] = "0"
def f(x): helper.count = 1
def f(T): T.add = helper
T = torch.Tensor; T.add = helper
def f(x): type(x).add = helper
def f(x): T = type(x); T.add = helper
[torch.Tensor][0].add = helper
x = 1; x.y.z.add = helper
def f(): torch.Tensor.add, y = helper, 1
def f(x): x["n"].backward_hook = 1
def f(x): x.block_shape = [1]
def f(x): F.block_shape = [1]
place = torch.backends.cuda.matmul; place = torch.nn; place.allow_tf32 = True
---
N = [0]
def f(): N[0] += 1
---
C = {}
def f(x): C[1] = x
---
class N(nn.Module):
    @staticmethod
    def f(one, two): two.count = 1
""") + _each("class N(nn.Module):\n    def f(self, other): NAME = 2", "self.linear.eps other.count other.weight")
_REFUSED["state"] = _pieces("""
def f(x, c={}): c[1] = x
def f(x, c=[]): c.append(x)
def f(x, *, c={}): c[1] = x
def f(x, *, n=1, c=[]): c.append(x)
def f(a, b=1, c={}): c[1] = a
def f(c={}, /, n=1): c[1] = n
D = collections.defaultdict(helper)
D = collections.defaultdict(lambda: torch.relu(torch.ones(3)))
D = [collections.defaultdict][0]
""") + _each("C = collections.deque()\ndef f(x): C.NAME(x)", "append extendleft setdefault")
_REFUSED["base"] = _each("class P(NAME): pass", """
dict Exception Model torch.Tensor torch.nn.Parameter nn.LazyLinear nn.modules.Linear collections.OrderedDict
enum.EnumMeta metaclass=abc.ABCMeta nn.Module,metaclass=type
""")  # fmt: skip
_REFUSED["method"] = (
    _each(
        "class B(nn.Module):\n    def NAME(self, x): return x",
        "__call__ __setattr__ _apply parameters state_dict train",
    )
    + _each("class P:\n    def NAME(self, o): return True", "__eq__ __del__ __getattr__ __torch_function__")
    + ["class B(nn.Module):\n    _call_impl = helper", "class P:\n    __getattr__ = helper"]
)
_REFUSED["internals"] = _each(
    "class B(nn.Module):\n    def f(self): NAME = helper", 'self.forward self._parameters["x"]'
)
_REFUSED["try"] = _pieces("""
---
try: FAST = True
except Exception: FAST = False
---
try: pass
finally: pass
---
try:
    import math
    f()
except Exception: pass
---
try: import math
except ImportError: pass
finally: pass
---
try:
    fast = tl.math
    kern[(1,)](1)
except Exception: pass
---
try: x = torch.relu(x)
except Exception: x = None
---
try: n = torch.cuda.get_device_properties(x.sum()).name
except Exception: n = 1
---
try: fast = tl.math.tanh
except AttributeError: fast = torch.tanh(x)
---
try:
    fast = tl.math.tanh
except AttributeError:
    try: helper(1)
    except Exception: pass
---
try: import math
except ImportError: pass
else: kern[(1,)](1)
---
try: triton.set_allocator(torch.relu(x))
except Exception: pass
---
try: triton.set_allocator(n, size=torch.relu(x))
except Exception: pass
---
try: import flash_attn
except ImportError: print(torch.relu(x))
---
try: import flash_attn
except ImportError: print(x + x)
---
try:
    import math
    raise ValueError(kern[(1,)](x))
except ValueError: pass
---
def ends(i):
    try: return x[i]
    except IndexError as error: raise StopIteration(str(error))
---
try: kern[(1,)](x)
except ValueError: raise
---
try: import flash_attn
except ImportError: raise StopIteration("an iteration ends")
---
try: import flash_attn
except ImportError: raise next(iter([ValueError()]))
---
try:
    import math
    raise list(map(helper, [x]))
except Exception: pass
---
try: import flash_attn
except ImportError: print(helper)
---
try: import flash_attn
except ImportError: print("no", file=helper)
---
try: kern[(1,)](x)
except ValueError: raise
except RuntimeError: x = None
---
try: kern[(1,)](x)
except ValueError: raise
finally: pass
---
def f(x):
    try: kern[(1,)](x)
    except ValueError:
        if x.numel(): return x
        raise
---
for _ in range(2):
    try: kern[(1,)](x)
    except ValueError:
        for _ in range(1): break
        raise
""")
_REFUSED["with"] = _pieces("""
with helper(1): pass
with torch.relu(1): pass
with torch.no_grad(), torch.relu(1): pass
with torch.accelerator.Graph(): pass
---
def f(x):
    guard = torch.no_grad
    guard = torch.relu
    with guard(x): pass
---
def f(x, guard):
    with guard: pass
---
def f(x):
    guard = torch.no_grad() if x else helper(x)
    with guard: pass
---
def f(x):
    guard = torch.no_grad()
    match x:
        case guard: pass
    with guard: pass
""")
_REFUSED["decorator"] = _pieces("""
g = functools.wraps(helper)(kern)
g = functools.wraps
---
@tl.constexpr_type
def q(x): return x
---
mark = torch.no_grad
mark = torch.relu
@mark
def f(): pass
---
@helper
class A: pass
---
@helper
@triton.jit
def k(x): tl.store(x, 1)
---
@triton.jit
@functools.wraps(helper)
def k(x): tl.store(x, 1)
---
@functools.cache
@helper
def f(n): return n
---
@helper
@functools.lru_cache(None)
def f(n): return n
---
@functools.wraps(helper, ("__code__",))
def f(): pass
---
@functools.wraps(helper, updated=("__globals__",))
def f(): pass
---
@functools.wraps(*[helper])
def f(): pass
---
def mark(f): return f
mark = torch.relu
@mark
def f(): pass
---
def made(mark):
    @mark
    def f(): pass
---
@kern
def f(): pass
---
class N(nn.Module):
    @helper.property
    def f(self): return 1
""")
_REFUSED["cache"] = _pieces("""
g = functools.cache(helper)
g = functools.lru_cache(maxsize=None)(helper)
---
@functools.lru_cache
def f(x): return torch.softmax(x, -1)
---
@functools.cache
def f(x): return helper2(x)
def helper2(x): return torch.relu(x)
---
@functools.cache
def f(x): kern[(1,)](x, B=4); return x
---
@functools.cache
def f(x: torch.Tensor): return x
""")
_REFUSED["logging"] = _pieces("""
logging.getLogger().addHandler(helper)
log = logging.getLogger(); log.manager.setLogRecordFactory(helper)
logs = [logging.getLogger()]
make = logging.getLogger; make("a").parent
list(map(logging.getLogger, ["a"]))
(log := logging.getLogger()).debug("a"); log.handlers
say = logging.getLogger().debug
---
log = logging.getLogger()
def f(x): return log
""")
_REFUSED["numpy"] = _pieces("""
def f(x): return np.sqrt(x)
def f(x): return np.prod(x * 2)
def f(x): return np.maximum(3, 4, out=x)
def f(x): n = 3; n = x; return np.exp(n)
def f(x): kern[lambda meta: (int(np.ceil(meta["x"])),)](x, B=4)
f = functools.partial(np.sqrt)
def f(x): return [np.exp(row) for i, row in enumerate(x)]
---
def f(x):
    for row in x: return np.exp(row)
---
def f(x):
    n = 3
    match x:
        case n: pass
    return np.exp(n)
---
class N(nn.Module):
    def f(self, d, x):
        self.scale = 1
        setattr(self, f"sca{d}", x)
        return np.exp(self.scale)
---
class A:
    shape = torch.ones(3)
def f(a): return np.prod(a.shape)
""")
_REFUSED["kernel"] = _pieces(r'''
---
@triton.heuristics({"B": lambda args: """
def k(x):
    pass
""" and 16})
@triton.jit
def k(x, B: tl.constexpr): tl.store(x, B)
---
class K:
    @staticmethod
    @triton.jit
    def k(x):
        "text \
def k(x)"
        tl.store(x, 1)
''')
_REFUSED["launch"] = _each("def f(x, min): kern[lambda m: (NAME,)](x)", """
torch.relu(x).numel() int((x@x).sum()) len(x@x) len(x.zero_()) len(x.fill_(1)) operator.mul(x,x) min(x)
""")  # fmt: skip
_REFUSED["launch"] += _pieces("""
c = triton.Config({}, pre_hook=lambda n: n["x"].softmax(-1))
c = triton.Config({}, **{"pre_hook": helper})
c = triton.Config({}, 4, 2, 1, None, lambda n: n["x"].softmax(-1))
def f(x, buf): kern[lambda m: (buf.append(x), 1)[1:]](x)
def f(x): kern[functools.partial(operator.mul, x)](x, B=4)
---
def made(x): return lambda m: (x.softmax(-1),)
def f(x): kern[made(x)](x, B=4)
---
def made(x): return lambda m: (x.softmax(-1),)
def f(x):
    g = made(x)
    kern[g](x, B=4)
---
class Grid:
    def __call__(self, m): return torch.relu(m["x"])
def f(x): kern[Grid()](x, B=4)
---
def slowed(g):
    def run(m): return torch.relu(m["x"]) and g(m)
    return run
@slowed
def grid(m): return (1,)
def f(x): kern[grid](x, B=4)
---
class N(nn.Module):
    def f(self, x):
        self.size = lambda: torch.relu(x)
        kern[lambda m: (self.size(),)](x, B=4)
---
def f(x):
    def g(m):
        x.copy_(x)
        return (1,)
    kern[g](x)
---
def f(x):
    g = lambda m: (x.softmax(-1), 1)
    kern[g](x)
---
def f(x):
    run = kern[lambda m: (x.softmax(-1),)]
    run(x)
---
def launch(grid, x): kern[grid](x)
def f(x): launch(lambda m: (x.softmax(-1),), x)
---
grid = functools.partial(helper2, 1)
def helper2(n, m): return (torch.relu(m["x"]), n)
def f(x): kern[grid](x, B=4)
---
def size(x): return half(x)
def half(x): return x.softmax(-1)
def f(x): kern[lambda m: (size(x),)](x)
---
class Sizes:
    def __getitem__(self, n): return torch.relu(n)
def f(x, s): kern[lambda m: (s[0],)](x, B=4)
---
class Sizes:
    def numel(self): return torch.relu(torch.ones(3))
def f(x, s): kern[lambda m: (s.numel(),)](x, B=4)
""")
_REFUSED["launch"] += _kernel(
    _pieces("""
@triton.heuristics({"B": operator.neg})
@triton.heuristics({"B": lambda a: torch.relu(a["x"])})
@triton.autotune(configs=[], key=[], do_bench=helper)
@triton.autotune(configs=[], key=[], post_hook=lambda n: n["x"].softmax(-1))
@triton.autotune([], ["n"], {"early_config_prune": lambda c, n: [n["x"].softmax(-1)]})
@triton.autotune([], ["n"], None, None, None, lambda n, reset_only: n["x"].softmax(-1))
---
def h(a): return a["x"].softmax(-1)
@triton.heuristics({"B": h})
---
H = {"B": lambda a: a["x"].mul_(2)}
@triton.heuristics(H)
""")
)
_UNPACKED = _pieces("""
---
more = {"do_bench": helper}
---
more = {}
more.update(do_bench=helper)
---
more = {}
more |= {"do_bench": helper}
---
more = {}
more = dict(do_bench=helper)
---
more = {}
match {"do_bench": helper}:
    case more: pass
---
more = {}
match {"do_bench": helper}:
    case {**more}: pass
---
more = {}
def put():
    global more
    more = {"do_bench": helper}
put()
---
more = {**other}
---
more = {}
for more in [{"do_bench": helper}]: pass
---
def made(more):
    return triton.autotune(configs=[], key=[], **more)
""")
_REFUSED["launch"] += _kernel([f"{piece}\n@triton.autotune(configs=[], key=[], **more)" for piece in _UNPACKED])
_REFUSED["launch"] += [
    "from torch.library import wrap_triton\nlauncher = wrap_triton(kern)",
    "import torch.library\ndef f(x): return [torch.library.wrap_triton, x]",
]
_REFUSED["decorator"] += ["@helper.register_kernel('cuda')\ndef f(x): return x"]
_REFUSED["entry"] = _pieces("""
class ModelNew(nn.Module): pass
ModelNew = helper
ModelNew: type = helper
for ModelNew in [helper]: pass
""")
_REFUSED["del"] = ["del helper", "del kern"]
_REFUSED["generator"] = ["def f(): yield 1", "def f(): return (yield)"]
_REFUSED["async"] = ["async def f(): pass"]
_REFUSED["global"] = ["def f():\n    global N\n    N = 1"]
_REFUSED["nonlocal"] = ["def f():\n    n = 0\n    def g():\n        nonlocal n\n        n += 1"]
REFUSED = [(rule, piece) for rule, pieces in _REFUSED.items() for piece in pieces]
