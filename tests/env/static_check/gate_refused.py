# SPDX-License-Identifier: Apache-2.0
"""Ways around the static gate, each of which it closes.

Pieces are divided by lines of dashes; each stands between HEADER and ENTRY of gate_programs.py.
"""

REFUSED = r'''
F.importlib.import_module("os")
---
F.np.sum
---
F.torch.os
---
nn.modules.module.register_module_forward_hook(f)
---
m = [torch][0]
---
for m in (torch,): m.load
---
def f(m=torch): return m.load
---
f = lambda m: m.load; f(torch)
---
[m.load for m in [torch]]
---
(m := torch.nn).modules
---
functools.partial(getattr, torch)("ops")
---
functools.reduce(getattr, ["ops"], torch)
---
d = {"t": torch}
---
class A:
    t = torch
---
x = torch if 1 else math
---
math.__spec__
---
typing.get_type_hints(f)
---
typing.sys
---
dataclasses.sys
---
dataclasses.make_dataclass("X", [])
---
tl.core.builtins
---
tl.math.core
---
tl.semantic
---
class B(nn.Module):
    def __call__(self, x): return x
---
class B(nn.Module):
    def state_dict(self): return {}
---
class B(nn.Module):
    _call_impl = helper
---
class B(nn.Module):
    def train(self, m): pass
---
class B(nn.Module):
    def parameters(self): pass
---
class B(nn.Module):
    def f(self): self.forward = helper
---
class B(nn.Module):
    def f(self): self._parameters["x"] = 1
---
class B(nn.Module):
    def f(self): self.register_forward_hook(helper)
---
class B(nn.Module):
    def f(self): self.__dict__["x"] = 1
---
nn.Module.register_forward_hook
---
def f(x): x.register_hook(helper)
---
def f():
    global N
    N = 1
---
def f():
    n = 0
    def g():
        nonlocal n
        n += 1
---
N = [0]
def f(): N[0] += 1
---
C = {}
def f(x): C.setdefault(1, x)
---
C = {}
def f(x): C[1] = x
---
C = []
def f(x): C.append(x)
---
def f(x, c={}): c[1] = x
---
def f(x, c=[]): c.append(x)
---
def f(x): helper.count = 1
---
def f(x): kern.fn = helper
---
def f(x): kern.fn(x)
---
def f(x): kern.run(x, grid=(1,), warmup=False)
---
def f(k): k.fn(1)
---
def f(x): x.numpy()
---
def f(x): x.tolist()
---
def f(x): x.apply_(helper)
---
def f(x): torch.Tensor.tolist(x)
---
def f(x): getattr(x, "tolist")()
---
def f(x): x.untyped_storage()
---
def f(x): k = x.data_ptr()
---
def f(x, c): return c[x.data_ptr()]
---
id(3)
---
hash(3)
---
input()
---
help()
---
memoryview(b"")
---
bytearray(1)
---
type("X", (object,), {})
---
functools.partial(type, "X")
---
t = type
---
super
---
s = super()
---
torch.manual_seed(0)
---
torch.set_rng_state(1)
---
torch.default_generator
---
torch.set_default_dtype(torch.float64)
---
torch.backends.cudnn.flags
---
torch.backends.mkldnn.enabled = False
---
torch.cuda.Stream()
---
torch.cuda.stream(1)
---
torch.cuda.CUDAGraph()
---
torch.cuda.graph(1)
---
torch.cuda.Event()
---
torch.compile(helper)
---
torch.jit.script
---
torch.fx.wrap
---
torch.ops.aten
---
torch.library
---
torch._C
---
torch.utils.data
---
torch.from_numpy
---
torch.frombuffer
---
torch.from_file
---
torch.save
---
torch.load
---
torch.from_dlpack
---
torch.vmap(helper)
---
torch.func.grad
---
torch.overrides
---
torch.nested
---
torch.sparse.mm
---
torch.distributions
---
torch.accelerator
---
torch.DisableTorchFunction()
---
torch.FloatStorage()
---
triton.runtime.jit
---
triton.compiler
---
triton.knobs
---
triton.testing
---
triton.language.core
---
triton.runtime.driver.set_active(1)
---
triton.runtime.driver.active = 1
---
def f(): yield 1
---
async def f(): pass
---
def f(): return (yield)
---
with open("x"): pass
---
with helper(1): pass
---
del helper
---
del kern
---
@helper
def f(): pass
---
@functools.lru_cache
def f(x): return torch.softmax(x, -1)
---
@functools.lru_cache
def f(x): return x.sum()
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
---
g = functools.cache(helper)
---
g = functools.lru_cache(maxsize=None)(helper)
---
def f(x): kern[lambda m: (torch.relu(x).numel(),)](x)
---
def f(x): kern[lambda m: (int((x @ x).sum()),)](x)
---
def f(x, buf):
    kern[lambda m: (buf.append(x), 1)[1:]](x)
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
def launch(grid, x): kern[grid](x)
def f(x): launch(lambda m: (x.softmax(-1),), x)
---
@triton.heuristics({"B": lambda a: torch.relu(a["x"])})
@triton.jit
def k(x, B: tl.constexpr): tl.store(x, 1)
---
def h(a): return a["x"].softmax(-1)
@triton.heuristics({"B": h})
@triton.jit
def k(x, B: tl.constexpr): tl.store(x, 1)
---
H = {"B": lambda a: a["x"].mul_(2)}
@triton.heuristics(H)
@triton.jit
def k(x, B: tl.constexpr): tl.store(x, 1)
---
c = triton.Config({}, pre_hook=lambda n: n["x"].softmax(-1))
---
c = triton.Config({}, **{"pre_hook": helper})
---
more = {"do_bench": helper}
@triton.autotune(configs=[], key=[], **more)
@triton.jit
def k(x): tl.store(x, 1)
---
more = {}
more["do_bench"] = helper
@triton.autotune(configs=[], key=[], **more)
@triton.jit
def k(x): tl.store(x, 1)
---
more = {}
more.update(do_bench=helper)
@triton.autotune(configs=[], key=[], **more)
@triton.jit
def k(x): tl.store(x, 1)
---
more = {}
other = more
other["do_bench"] = helper
@triton.autotune(configs=[], key=[], **more)
@triton.jit
def k(x): tl.store(x, 1)
---
more = {}
more |= {"do_bench": helper}
@triton.autotune(configs=[], key=[], **more)
@triton.jit
def k(x): tl.store(x, 1)
---
more = {}
more = dict(do_bench=helper)
@triton.autotune(configs=[], key=[], **more)
@triton.jit
def k(x): tl.store(x, 1)
---
more = {}
match {"do_bench": helper}:
    case more: pass
@triton.autotune(configs=[], key=[], **more)
@triton.jit
def k(x): tl.store(x, 1)
---
more = {}
match {"do_bench": helper}:
    case {**more}: pass
@triton.autotune(configs=[], key=[], **more)
@triton.jit
def k(x): tl.store(x, 1)
---
more = {}
def put():
    global more
    more = {"do_bench": helper}
put()
@triton.autotune(configs=[], key=[], **more)
@triton.jit
def k(x): tl.store(x, 1)
---
more = {**other}
@triton.autotune(configs=[], key=[], **more)
@triton.jit
def k(x): tl.store(x, 1)
---
more = {}
for more in [{"do_bench": helper}]: pass
@triton.autotune(configs=[], key=[], **more)
@triton.jit
def k(x): tl.store(x, 1)
---
def made(more):
    return triton.autotune(configs=[], key=[], **more)
@triton.autotune(configs=[], key=[], **more)
@triton.jit
def k(x): tl.store(x, 1)
---
@triton.autotune(configs=[], key=[], do_bench=helper)
@triton.jit
def k(x): tl.store(x, 1)
---
@triton.jit
def k(x): open(x)
---
class P(dict): pass
---
class P(torch.Tensor): pass
---
class P(nn.Linear): pass
---
class P(torch.nn.Parameter): pass
---
class P(Exception): pass
---
class P:
    def __eq__(self, o): return True
---
class P:
    def __del__(self): pass
---
class P:
    __getattr__ = helper
---
match 1:
    case object(__class__=c): pass
---
match 1:
    case object(tolist=c): pass
---
__name__ = "__main__"
---
x = __file__
---
import math as __builtins__
---
from math import *
---
torch.Tensor.add = helper
---
def f(T): T.add = helper
---
T = torch.Tensor
T.add = helper
---
def f(x): type(x).add = helper
---
def f(x):
    T = type(x)
    T.add = helper
---
[torch.Tensor][0].add = helper
---
x = 1
x.y.z.add = helper
---
def f():
    torch.Tensor.add, y = helper, 1
---
import importlib
---
import numpy.linalg
---
import os.path
---
import torch.utils
---
from torch.nn.modules import module
---
from torch.nn.functional import importlib
---
from functools import wraps
---
from triton.runtime import interpreter
---
from triton.runtime.driver import set_active
---
from triton.language import core
---
import triton.language.core as c
---
from torch import nn as n2, os
---
from torch import compile as c
---
class B(nn.Module):
    def __setattr__(self, n, v): pass
---
class B(nn.Module):
    def _apply(self, n): pass
---
def f(x): return x._base
---
def f(x): x.grad_fn
---
def f(x): x.is_inference()
---
torch.is_inference
---
torch.is_inference_mode_enabled
---
from torch import is_inference_mode_enabled
---
def f(): return torch._C._VariableFunctions
---
def f(x): return x.as_subclass(int)
---
exec
---
quit()
---
breakpoint()
---
def f(x):
    run = kern[lambda m: (x.softmax(-1),)]
    run(x)
---
class ModelNew(nn.Module): pass
---
from torch.nn import Module
Module = type(torch.empty(1))
class Evil(Module): pass
---
from torch import no_grad
def no_grad(): return helper
---
ModelNew = helper
---
ModelNew: type = helper
---
for ModelNew in [helper]: pass
---
def f(x):
    import math
    math = x
---
@triton.autotune(configs=[], key=[], post_hook=lambda n: n["x"].softmax(-1))
@triton.jit
def k(x): tl.store(x, 1)
---
@triton.autotune([], ["n"], {"early_config_prune": lambda c, n: [n["x"].softmax(-1)]})
@triton.jit
def k(x, n): tl.store(x, n)
---
@triton.autotune([], ["n"], None, None, None, lambda n, reset_only: n["x"].softmax(-1))
@triton.jit
def k(x, n): tl.store(x, n)
---
c = triton.Config({}, 4, 2, 1, None, lambda n: n["x"].softmax(-1))
---
def size(x): return x.softmax(-1)
def f(x): kern[lambda m: (size(x),)](x)
---
def size(x): return half(x)
def half(x): return x.softmax(-1)
def f(x): kern[lambda m: (size(x),)](x)
---
def f(x): kern[lambda m: (len(x @ x),)](x)
---
def f(x): kern[lambda m: (len(x.zero_()),)](x)
---
def f(x): kern[lambda m: (len(x.fill_(1)),)](x)
---
from .math import sqrt
---
from ..torch import nn as n2
---
def f(x): getattr(x, "_version")
---
def f(x): return hasattr(x, "_private")
---
getattr(math, 3)
---
getattr(math, b"pi")
---
try:
    import math
except ImportError:
    pass
finally:
    pass
---
try:
    import math
except ImportError:
    pass
else:
    pass
---
try:
    FAST = True
except Exception:
    FAST = False
---
def f(x):
    with torch.relu(x): pass
---
def f(x):
    guard = torch.no_grad
    guard = torch.relu
    with guard(x): pass
---
def f(x):
    with torch.no_grad(), torch.relu(x): pass
---
place = torch.backends.cuda.matmul
place = torch.nn
place.allow_tf32 = True
---
class N(nn.Module):
    def f(self): self.linear.eps = 2
---
class N(nn.Module):
    def f(self, other): other.count = 1
---
class N(nn.Module):
    def f(self, other): other.weight = 1
---
class N(nn.Module):
    @staticmethod
    def f(one, two): two.count = 1
---
def property(f): return helper
class N(nn.Module):
    @property
    def f(self): return 1
---
mark = torch.no_grad
mark = torch.relu
@mark
def f(): pass
---
def f(x, *, c={}): c[1] = x
---
def f(x, *, n=1, c=[]): c.append(x)
---
def f(a, b=1, c={}): c[1] = a
---
def f(c={}, /, n=1): c[1] = n
---
if False: getattr = 1
getattr(torch, "o" + "ps")
---
def f(x):
    [getattr for getattr in x]
    return getattr(torch, "o" + "ps")
---
class A:
    if 0: getattr = 1
    found = getattr(torch, "o" + "ps")
---
def f(x): return [getattr(torch, "o" + "ps") for y in x] + [getattr for getattr in x]
---
def f(type=type): return type("X", (object,), {})
---
class A:
    type = 1
    def f(self): return type("X", (object,), {})
---
def f(x):
    match x:
        case {**getattr}: pass
    return lambda: open
---
def f(): return [open for y in [1]]
---
import torch as _A__x
__x = 1
class A:
    def f(self): return __x.ops
---
def f(x): return interpreter_semantic
---
interpreter_semantic = interpreter_semantic
---
interpreter_semantic: int
def f(x): return interpreter_semantic
---
class A: interpreter_semantic = interpreter_semantic
---
def f():
    class A: interpreter_semantic = interpreter_semantic
---
for semantic in [semantic]: pass
---
def f(x, B=interpreter_semantic): return B
---
@triton.jit
def k(x): tl.store(x, interpreter_semantic)
---
print([interpreter_semantic for y in [1]])
---
def f(x): return x.data_ptr() % (1 << 60)
---
def f(x): return x.data_ptr() % 1125899906842624
---
def f(x, c): return x.data_ptr() % c
---
def f(x): return x.data_ptr() & -1
---
def f(x): return x.data_ptr() < 140000000000000
---
def f(x, k): return x.data_ptr() == k
---
def f(x, y): return x.data_ptr() == y.data_ptr() == 7
---
def f(x): return 16 % x.data_ptr()
---
def f(x): return getattr(x, "data_ptr")()
---
def f(x): return x.data_ptr(x.data_ptr() % 16)
---
MOD = 16
MOD = 1 << 60
def f(x): return x.data_ptr() % MOD
---
def f(x):
    for MOD in [1 << 60]: return x.data_ptr() % MOD
---
def f(x): k = kern.__class__
---
@triton.heuristics({"B": lambda args: """
def k(x):
    pass
""" and 16})
@triton.jit
def k(x, B: tl.constexpr): tl.store(x, B)
---
@triton.jit(repr="""
def other(x): tl.store(x, 2)
""")
@triton.jit
def k(x): tl.store(x, 1)
---
@triton.jit(noinline="\
def k(x): tl.store(x, 2)\
")
def k(x): tl.store(x, 1)
---
if True:
    @triton.jit
    def k(x):
        """
def k(x): tl.store(x, 2)
        """
        tl.store(x, 1)
---
class K:
    @staticmethod
    @triton.jit
    def k(x):
        "text \
def k(x)"
        tl.store(x, 1)
---
import numpy as np
np.array([1.0])
---
import numpy as np
def f(x): return np.sqrt(x)
---
import numpy as np
def f(x): return np.prod(x * 2)
---
import numpy as np
def f(x): return list(map(np.sqrt, x))
---
import numpy as np
def f(x): return np.maximum(3, 4, out=x)
---
import numpy as np
def f(x):
    for row in x: return np.exp(row)
---
import numpy as np
def f(x):
    n = 3
    n = x
    return np.exp(n)
---
import numpy as np
def f(x): kern[lambda meta: (int(np.ceil(meta["x"])),)](x, B=4)
---
import numpy as np
class A:
    shape = torch.ones(3)
def f(a): return np.prod(a.shape)
---
from numpy import asarray
---
import numpy as np
f = functools.partial(np.sqrt)
---
import operator
operator.attrgetter("tolist")
---
import operator
operator.methodcaller("tolist")
---
import operator
@triton.heuristics({"B": operator.neg})
@triton.jit
def k(x, B: tl.constexpr): tl.store(x, 1)
---
import operator
def f(x): kern[lambda m: (operator.mul(x, x), 1)[1:]](x, B=4)
---
import operator
def f(x): kern[functools.partial(operator.mul, x)](x, B=4)
---
import os
os.system("true")
---
import os
os.environ["TRITON_INTERPRET"] = "0"
---
import os
os.environ.update(A="1")
---
import os
env = os.environ
env.setdefault("A", "1")
---
import os
helper(os.environ)
---
from os import environ
getattr(environ, "update")
---
from os import execv
---
import warnings
warnings.showwarning = helper
---
import warnings
warnings.sys
---
import collections
D = collections.defaultdict(helper)
---
from collections import defaultdict
D = defaultdict(lambda: torch.relu(torch.ones(3)))
---
from collections import defaultdict
D = [defaultdict][0]
---
from collections import deque
D = deque()
def f(x): D.extendleft([x])
---
import collections
collections.abc
---
import collections
class D(collections.OrderedDict): pass
---
import enum
class E(enum.EnumMeta): pass
---
import abc
class M(metaclass=abc.ABCMeta): pass
---
class Sizes:
    def __getitem__(self, n): return torch.relu(n)
def f(x, s): kern[lambda m: (s[0],)](x, B=4)
---
class Sizes:
    def numel(self): return torch.relu(torch.ones(3))
def f(x, s): kern[lambda m: (s.numel(),)](x, B=4)
---
def f(x, min): kern[lambda m: (min(x),)](x, B=4)
---
grid = functools.partial(helper2, 1)
def helper2(n, m): return (torch.relu(m["x"]), n)
def f(x): kern[grid](x, B=4)
---
def f(x): a = [x.data_ptr()]; return a[0]
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
def f(x): return torch.tensor(sorted([x.data_ptr()]))
---
def f(x): return [y for y in [x.data_ptr()]]
---
def f(x): return torch.tensor([x.data_ptr() + 1])
---
def f(x):
    a = [x.data_ptr()]
    return lambda: a
---
def f(x): return x.numel([x.data_ptr()])
---
def f(x): x["n"].backward_hook = 1
---
def f(x): x.block_shape = [1]
---
def f(x): F.block_shape = [1]
---
import logging
logging.getLogger().addHandler(f)
---
import logging
log = logging.getLogger()
log.manager.setLogRecordFactory(f)
---
import logging
log = logging.getLogger()
def f(x): return log
---
import logging
logs = [logging.getLogger()]
---
import logging
make = logging.getLogger
make("a").parent
---
import logging
list(map(logging.getLogger, ["a"]))
---
import logging
(log := logging.getLogger()).debug("a")
log.handlers
---
import logging
say = logging.getLogger().debug
---
import logging
logging.basicConfig()
---
import logging
logging.Logger.debug = f
---
import logging.handlers
---
@tl.constexpr_type
def q(x): return x
---
torch.accelerator.set_device_index(0)
---
with torch.accelerator.Graph(): pass
---
"{0.__globals__}".format(helper)
---
"{0.a[b]}".format(helper)
---
"{:{0.a}}".format(helper)
---
"{0[a]:{1}}".format({}, 2)
---
str.format("{0.a}", helper)
---
t = "{0.a}"
t.format(helper)
---
"".join(["{0", ".a}"]).format(helper)
---
("{0" + ".a}").format(helper)
---
"{a.b}".format_map({"a": helper})
---
"{}".format_map({})
---
write = str.format
---
list(map("{0.a}".format, [helper]))
---
getattr("{0.a}", "format")(helper)
---
getattr(str, "format_map")
---
"{".format(helper)
---
"{:{:{:{:}}}}".format(1)
---
match helper:
    case str(format=f): pass
---
match helper:
    case object(fn=f): pass
---
match helper:
    case object(data_ptr=f): pass
'''.strip("\n").split("\n---\n")
