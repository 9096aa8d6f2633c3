# SPDX-License-Identifier: Apache-2.0
"""What honest programs are made of.

Pieces are divided by lines of dashes; each stands between HEADER and ENTRY of gate_programs.py.
"""

ACCEPTED = r'''
from torch.nn import Module, Parameter, functional as G
---
from torch.nn.parameter import Parameter
---
from torch.autograd import Function
---
import torch.cuda
---
from triton import jit, autotune, Config, cdiv, next_power_of_2, heuristics
---
from triton.language import load, store, program_id
---
from triton.language import math as tlm
---
from triton.language.math import exp
---
from triton.language.extra import libdevice
@triton.jit
def q(x): tl.store(x, libdevice.tanh(tl.load(x)))
---
import triton.language.extra.libdevice as ld
---
from triton.language.extra.cuda.libdevice import tanh
---
import triton.language.extra.cuda.libdevice as ld
---
try:
    from triton.language.extra import libdevice
except ImportError:
    from triton.language.extra.cuda import libdevice
---
try:
    from triton.language.extra import libdevice
except Exception:
    libdevice = None
---
@triton.jit
def q(x): tl.store(x, tl.extra.cuda.libdevice.tanh(tl.load(x)))
---
@triton.jit
def q(x, ACT: tl.constexpr):
    v = tl.load(x)
    if ACT == "relu":
        v = tl.maximum(v, 0.0)
    for i in range(0, 4):
        v += float(i)
    for i in tl.static_range(3):
        v = v + i
    acc = tl.zeros((16,), dtype=tl.float32)
    acc = acc.to(x.dtype.element_ty)
    tl.store(x, v * math.pi + float("inf"))
---
LOG2E = tl.constexpr(1.44)
@triton.jit
def q(x): tl.store(x, LOG2E)
---
@triton.jit
def mul(a, b):
    return a * b
@triton.jit
def q(x, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    tl.store(x, tl.reduce(v, 0, mul))
---
@triton.jit
def q(x, f: tl.constexpr): tl.store(x, f(tl.load(x)))
---
def f(x):
    B, C, F = x.shape
    kern[(B,)](x, F)
---
def f(x):
    grid = lambda meta: (triton.cdiv(x.numel(), meta["B"]), x.shape[0])
    kern[grid](x, B=64)
---
def f(x):
    def grid(META):
        """Grid."""
        n = x.size(0) * x.shape[-1]
        return (triton.cdiv(n, META["B"]),)
    kern[grid](x, B=64)
---
def f(x):
    kern[(triton.cdiv(x.numel(), 64), 1, 1)](x, B=64, num_warps=4)
---
def launch(k, grid, *args): k[grid](*args)
def f(x): launch(kern, (1,), x)
---
def launch(k, grid, x): k[grid](x)
def f(x): launch(kern, lambda m: (triton.cdiv(x.numel(), m["B"]),), x)
---
def cfgs():
    out = []
    for b, w in itertools.product([64, 128], [2, 4]):
        out.append(triton.Config({"B": b}, num_warps=w, num_stages=2))
    return out
@triton.autotune(configs=cfgs(), key=["n"], reset_to_zero=["o"])
@triton.jit
def q(x, o, n, B: tl.constexpr): tl.store(o, tl.load(x))
---
more = {}
rest = {"warmup": 5, "rep": 10}
@triton.autotune(configs=[triton.Config({"B": 64}, **{"num_warps": 4})], key=["n"], **more)
@triton.jit
def q(x, n, B: tl.constexpr): tl.store(x, n)
@triton.autotune(configs=[triton.Config({"B": 64})], key=["n"], **more, **rest)
@triton.jit
def q2(x, n, B: tl.constexpr): tl.store(x, n)
---
CONFIGS = [triton.Config({"B": b}, num_warps=w) for b in (64, 128) for w in (2, 4)]
@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def q(x, n, B: tl.constexpr): tl.store(x, n)
---
def prune(configs, named_args, **kwargs):
    return [c for c in configs if c.kwargs["B"] <= named_args["n"]]
@triton.autotune(configs=[], key=["n"], prune_configs_by={"early_config_prune": prune})
@triton.jit
def q(x, n, B: tl.constexpr): tl.store(x, n)
---
@triton.heuristics({"EVEN": lambda args: args["n"] % args["B"] == 0, "B": lambda args: min(1024, triton.next_power_of_2(args["n"]))})
@triton.jit
def q(x, n, EVEN: tl.constexpr, B: tl.constexpr): tl.store(x, n)
---
@triton.heuristics(values={"B": lambda a: max(16, int(math.ceil(a["n"] / 4)))})
@triton.jit
def q(x, n, B: tl.constexpr): tl.store(x, n)
---
@dataclass(frozen=True)
class Cfg:
    a: int = 1
    b: list = field(default_factory=list)
    def total(self):
        return self.a + len(self.b)
---
class Cfg:
    BLOCK = 64
    def __init__(self, a):
        self.a = a
cfg = Cfg(1)
cfg.a = 2
---
CONFIG = {"BLOCK": 64, "warps": 4}
def f(x): kern[(1,)](x, B=CONFIG["BLOCK"], **{"num_warps": 4})
---
class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.n = 3
        return x
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * x
def f(x): return Fn.apply(x)
---
class Fn(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x): return x
---
class Base(nn.Module):
    def __init__(self):
        super(Base, self).__init__()
        self.w = nn.Parameter(torch.randn(3))
        self.linear = nn.Linear(3, 3)
        self.register_buffer("b", torch.zeros(3))
        self.linear.weight.data.normal_()
        self.linear.bias = None
        self.w.data = self.w.data.contiguous()
class Child(Base):
    def forward(self, x): return super().forward(x)
---
class N(nn.Module):
    def __init__(self):
        super().__init__()
        self._buf = None
        self._cache = {}
        self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
        self.apply(self._init)
    def _init(self, m):
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)
    def forward(self, x):
        if self._buf is None or self._buf.shape != x.shape:
            self._buf = torch.empty_like(x)
        key = (tuple(x.shape), x.dtype)
        if key not in self._cache:
            self._cache[key] = 3
        self.calls = getattr(self, "calls", 0) + 1
        return self._buf
    def extra_repr(self): return "n"
---
def f(x):
    assert x.is_cuda and x.is_contiguous(), f"need {x.device!r:>10}"
    if x.dtype not in (torch.float32, torch.float16):
        raise ValueError(f"bad {type(x)}")
    assert x.data_ptr() % 16 == 0
    assert x.stride(0) == 1
    assert type(x) is torch.Tensor
    del x
---
def f(x):
    x = F.relu(x); y = torch.softmax(x, dim=-1) @ x.t(); y += 1; y[0] = 2; y[..., 1:] = 0; return torch.einsum("ij,jk->ik", x, y).sum().item()
---
def f(x):
    with torch.no_grad(), torch.cuda.device(x.device):
        return x
---
def f(x):
    with torch.autocast("cuda", enabled=False):
        return x
---
def f(x):
    dims = [d for d in x.shape if d > 1]
    n = sum(s for s in dims)
    y = list(map(int, x.shape)); z = sorted(dims, key=lambda d: -d); w = max(dims, key=lambda d: d)
    return torch.Size(y)
---
@torch.no_grad()
def f(x): return x
---
@torch.inference_mode()
def f(x): return x
---
@functools.lru_cache(maxsize=None)
def sm(index): return torch.cuda.get_device_properties(index).multi_processor_count
---
def sm(x):
    if x.device.type == "cuda":
        return torch.cuda.get_device_properties(x.device).multi_processor_count
    return torch.xpu.get_device_properties(x.device).gpu_eu_count
---
@lru_cache
def block(n: int) -> int: return min(1024, triton.next_power_of_2(n))
---
@functools.cache
def plan(rows, cols):
    parts = []
    for r in range(rows):
        parts.append(r * cols)
    return tuple(parts)
---
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
torch.backends.cudnn.benchmark = True
torch.set_float32_matmul_precision("high")
---
props = triton.runtime.driver.active.utils.get_device_properties(0)
---
from triton.runtime import driver
props = driver.active.utils.get_device_properties(0)
---
DEVICE = triton.runtime.driver.active.get_active_torch_device()
---
def is_cuda(): return triton.runtime.driver.active.get_current_target().backend == "cuda"
---
from triton.tools.tensor_descriptor import TensorDescriptor
def f(x): return TensorDescriptor.from_tensor(x, [16, 16])
---
def alloc(size: int, alignment: int, stream: Optional[int]): return torch.empty(size, device="cuda", dtype=torch.int8)
triton.set_allocator(alloc)
---
relu = F.relu
exp = tl.exp
fn = nn.functional
---
ACT = {"relu": 0, "gelu": 1}
DT = {torch.float32: tl.float32, torch.float16: tl.float16}
---
def get_inputs(): return [torch.randn(2, 2).cuda()]
def get_init_inputs(): return []
---
if __name__ == "__main__":
    import time, os
    try:
        m = ModelNew().cuda(); print(m(torch.randn(3)).tolist())
    except Exception as e:
        print(e)
---
print("loaded")
---
def f(x):
    def inner(y):
        return y * 2
    return inner(x)
---
def f(x, eval=False, open=None, input=None):
    return x if eval else input
---
class N(nn.Module):
    def forward(self, input):
        vars = 3; id = 4; hash = 5
        return input * vars * id * hash
---
def f(x: torch.Tensor, shape: Tuple[int, ...]) -> Optional[torch.Tensor]:
    n: int = math.prod(shape); m = math.ceil(math.log2(n)); return x.view(n // 2, -1)
---
def f(x):
    match x.dim():
        case 2: return x
        case _: return x[None]
---
def f(x): return nn.functional.scaled_dot_product_attention(x, x, x)
---
def f(x):
    out = torch.empty((x.shape[0], 4), device=x.device, dtype=x.dtype)
    out.requires_grad = False
    for i in range(3):
        kern[(1,)](out[i], B=4)
    return out.view_as(out).permute(1, 0).contiguous()
---
def f(x): return torch.cuda.get_device_properties(x.device).multi_processor_count, torch.version.cuda, torch.__version__
---
class Net(nn.Module):
    BLOCK: int = 64
    __constants__ = ["a"]
    def __init__(self):
        super().__init__()
        lin = nn.Linear(3, 4)
        lin.weight.data = torch.zeros(4, 3)
        self.weight, self.bias = lin.weight, lin.bias
    @property
    def size(self): return 3
    @staticmethod
    def s(x): return x
    @classmethod
    def make(cls): return cls()
---
if hasattr(tl, "make_block_ptr"):
    FOO = getattr(tl, "make_block_ptr")
---
@triton.jit
def q(x, n, B: tl.constexpr):
    tl.static_assert(B > 1)
    pid = tl.program_id(axis=0)
    off = pid * B + tl.arange(0, B)
    while n > 0:
        n -= 1
    a, b = tl.split(tl.load(x))
    m = off[:, None] < n
    tl.atomic_add(x + off, 1.0, mask=m)
    tl.device_assert(n == 0)
    p = tl.sum(tl.where(m, 1.0, 0.0), axis=0)
    assert n > 0
    lst = [a, b]
    len(lst)
    print("x", p)
---
@triton.jit
def q(x, n, B: tl.constexpr):
    for i in tl.range(0, n, num_stages=2):
        x += B * i.to(tl.int64)
    z = max(n, 4) + min(n, 2) + abs(n) + tl.cdiv(n, B)
    tl.store(x, z)
---
@triton.jit
def q(x, n: "i32", B: "tl.constexpr"): tl.store(x, n)
---
def f(x):
    sizes = {"n": x.shape[0]}
    sizes["m"] = 3
    sizes.update(k=4)
    parts = []
    parts.append(x)
    return torch.cat(parts)
---
def f(x):
    run = kern[(1,)]
    run(x, B=4)
---
def f(x):
    return x.float().half().to(torch.float32).type_as(x).contiguous().is_contiguous()
---
try:
    from triton.language.extra import libdevice
    FOUND = True
except ImportError:
    FOUND = False
---
@triton.autotune(configs=[], key=["n"], pre_hook=lambda n, reset_only: n["o"].zero_(), post_hook=lambda n, exception: n["o"].fill_(0))
@triton.jit
def q(o, n): tl.store(o, n)
---
@triton.autotune([], ["n"], None, None, None, lambda n, reset_only: n["o"].zero_())
@triton.jit
def q(o, n): tl.store(o, n)
---
c = triton.Config({"B": 64}, 4, 3, 1, None, lambda n: n["o"].zero_())
---
def sizes(b):
    made = {"B": b}
    made.update(W=4)
    return made
c = triton.Config(sizes(64), num_warps=4)
---
def half(n): return n if n < 2 else half(n // 2)
def odd(n): return n > 0 and even(n - 1)
def even(n): return n == 0 or odd(n - 1)
def f(x): kern[lambda m: (half(x.numel()) + odd(x.dim()),)](x)
---
def f(x): kern[lambda m: (x.numel() * x.size(0) // m["B"],)](x)
---
@triton.jit
def q(x):
    with tl.async_task([0]):
        tl.store(x, 1)
---
class N(nn.Module):
    def f(self):
        self.lin.weight = self.lin.bias = None
        self.lin.weight.requires_grad = False
        self.lin.weight.data = torch.zeros(2)
        self.descriptor.block_shape = [16, 16]
        def keep(value): self.kept = value
        keep(1)
---
def f(a, b=1, *, c=(), d=None):
    parts = []
    parts.append(a)
    return parts
---
import numpy as np
def f(x, n: int):
    B, C, H = x.shape
    total = int(np.prod(x.shape)) + int(np.prod(x.shape[1:])) + np.gcd(B, x.size(0)) + int(np.ceil(n / 64))
    return total * np.sqrt(H) * np.log2(float(C)) * np.pi * -np.inf, np.ceil(x.numel() / 4)
---
import numpy as np
class N(nn.Module):
    def __init__(self, d: int, heads: int = 4, eps=1e-5):
        super().__init__()
        self.head_dim = d // heads
        self.scale = 1.0 / np.sqrt(self.head_dim)
    def forward(self, x):
        s = np.exp2(self.scale) if self.head_dim > 1 else 1.0
        for k in range(3):
            s += np.sqrt(k)
        kern[lambda meta: (int(np.ceil(x.numel() / meta["B"])),)](x, B=4)
        return s
---
from torch.nn.modules.utils import _pair, _triple
def f(k): return _pair(k) + _triple(k)
---
import torch.nn.modules.utils as u
def f(k): return u._ntuple(2)(k)
---
def f(w):
    fan, _ = nn.init._calculate_fan_in_and_fan_out(w)
    return 1 / math.sqrt(fan)
---
from torch.nn import init
from torch.nn.init import _calculate_fan_in_and_fan_out as fan
def f(w): return fan(w), init._calculate_correct_fan(w, "fan_in")
---
def f(x): kern[(triton.cdiv(torch.numel(x), 64),)](x, B=64)
def g(x): kern[lambda m: (triton.cdiv(torch.numel(x), m["B"]),)](x, B=64)
---
def prune(configs, named_args, **kwargs):
    major, minor = torch.cuda.get_device_capability()
    shared = torch.cuda.get_device_properties(0).shared_memory_per_block
    return [c for c in configs if c.kwargs["B"] <= major * 64 < shared]
@triton.autotune(configs=[], key=["n"], prune_configs_by={"early_config_prune": prune})
@triton.jit
def q(x, n, B: tl.constexpr): tl.store(x, n)
---
import enum
from enum import IntEnum, auto
class Act(enum.Enum):
    RELU = "relu"
    GELU = "gelu"
class Stage(IntEnum):
    ONE = auto()
    TWO = auto()
def f(act: Act = Act.RELU): return act is Act.GELU, Act("relu").value, Stage.ONE.name
---
import abc
from abc import ABC, abstractmethod
class Base(nn.Module, ABC):
    @abstractmethod
    def forward(self, x): ...
class Other(abc.ABC):
    @property
    @abc.abstractmethod
    def size(self): ...
---
import collections
from collections import namedtuple, OrderedDict, defaultdict, deque, Counter
Shape = namedtuple("Shape", ["rows", "cols"])
def f(x):
    seen = defaultdict(list)
    seen[1].append(Shape(*x.shape).rows)
    return OrderedDict(a=1), deque([1]), Counter(x.shape), collections.defaultdict(int)
---
import operator
def f(x): return functools.reduce(operator.mul, x.shape, 1), operator.floordiv(7, 2)
---
import os
import warnings
warnings.filterwarnings("ignore", category=UserWarning)
DEBUG = os.environ.get("DEBUG", "0") == "1"
BLOCK = int(os.getenv("BLOCK", "64"))
LEVEL = os.environ["LEVEL"] if DEBUG else ""
def f(x):
    if DEBUG: warnings.warn(f"shape {x.shape}")
---
CONFIG: Dict[str, int] = {"BLOCK": 64}
CONFIG["warps"] = 4
CONFIG.update(stages=2)
if torch.cuda.is_available():
    CONFIG["warps"] = 8
def f(x): kern[(CONFIG["warps"],)](x, B=CONFIG["BLOCK"])
---
ALIGN = 16
def f(x, y):
    assert x.data_ptr() % ALIGN == 0 and not x.data_ptr() & 15 and x.data_ptr() % 1024 == 0
    return x.data_ptr() != y.data_ptr() == x.data_ptr()
---
def f(group):
    starts, sizes = [], []
    ends = []
    for x in group:
        starts.append(x.data_ptr())
        sizes += [x.numel()]
    ends += [x.data_ptr() for x in group]
    rows = [x.data_ptr() for x in group]
    made = torch.tensor(starts, device=x.device), torch.tensor(ends), torch.tensor(rows, dtype=torch.int64)
    return *made, torch.tensor([x.data_ptr(), group[0].data_ptr()]), torch.tensor([x.data_ptr() for x in group])
---
def set_block(nargs): nargs["desc"].block_shape = [nargs["B"], 64]
c = triton.Config({"B": 64}, num_warps=4, pre_hook=set_block)
---
@tl.constexpr
def accumulates_in(dtype): return tl.float32 if dtype.is_fp16() else dtype
---
import logging
logger = logging.getLogger(__name__)
def f(x):
    logger.debug("GEMS %s", x.shape)
    logging.getLogger().warning("slow")
---
from logging import getLogger
log = getLogger("kernels")
log.info("loaded")
---
def f(x):
    with torch.accelerator.device_index(x.device.index): return torch.accelerator.current_device_index()
---
@triton.heuristics({
    "B": lambda args: 16,  # def k(x): a remark
    "C": lambda args: triton.next_power_of_2(args["n"]),
})
@triton.jit(
    do_not_specialize=["n"],
)
def k(x, n, B: tl.constexpr, C: tl.constexpr):
    """As in

def k(x): pass
    """
    tl.store(x, B)
---
class Kernels:
    @staticmethod
    @triton.jit
    def k(x):
        """Not `def f(x)`, but:

        def k(x):
            pass
        """
        tl.store(x, 1)
---
class N(nn.Module):
    kind = "relu"
    def f(self, x, data, type_=None):
        squares = [type * e for type, e in enumerate(x.shape)]
        return (lambda getattr=1: getattr)(), squares, [s for s in squares if (last := s)], last
---
def later(x): return after(x) + LATER
def after(x): return LATER
LATER = 1
---
class N(nn.Module):
    def __init__(self):
        super().__init__()
        self.__hidden = 1
    def __own(self, __x): return __x + self.__hidden
---
def f(größe, λ=1): return größe * λ
---
def f(n):
    def odd(m): return m > 0 and even(m - 1)
    def even(m): return m == 0 or odd(m - 1)
    return odd(n)
---
from __future__ import annotations
def f(x: Missing, y: "Other") -> Absent:
    z: Nothing = x
    return z
---
if __name__ == "__main__":
    import sys
    @missing
    def main(): return [undefined for a in sys.argv]; main()  # pass
CONSTANT = 1
---
print("{}".format(1))
---
name = "block {0:>{1}}".format(1, 2)
---
text = "{x:.2f} {{0.a}}".format(x=1.0)
---
text = "%(size)s" % {"size": 3}
---
text = format(3, "d") + f"{3:>4}"
'''.strip("\n").split("\n---\n")
