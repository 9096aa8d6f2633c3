# SPDX-License-Identifier: Apache-2.0
"""What honest programs are made of, by subject; each part stands between HEADER and ENTRY of gate_programs.py."""

_TEXT = r'''
--- imports
from collections import namedtuple, OrderedDict, defaultdict, deque, Counter
from torch.nn import Module, Parameter, functional as G
from torch.nn.parameter import Parameter
from torch.autograd import Function
import torch.cuda
from triton import jit, autotune, Config, cdiv, next_power_of_2, heuristics
from triton.language import load, store, program_id
from triton.language import math as tlm
from triton.language.math import exp
relu = F.relu
power = tl.exp
fn = nn.functional
if hasattr(tl, "make_block_ptr"):
    FOO = getattr(tl, "make_block_ptr")
--- operators by their methods
@triton.jit
def shifted(x): return x.__lshift__(4).__or__(1)
--- a heuristic by the precision of products
@triton.heuristics({"WIDE": lambda args: torch.get_float32_matmul_precision() == "high"})
@triton.jit
def product(x, WIDE: tl.constexpr): tl.store(x, 1.0)
--- libdevice
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as fast
@triton.jit
def activated(x): return libdevice.tanh(x) * fast.erf(x) + tl.math.exp(x) * tl.sigmoid(x)
@triton.jit
def q(x): tl.store(x, activated(tl.load(x)) + tl.extra.cuda.libdevice.tanh(tl.load(x)))
--- other names for libdevice
import triton.language.extra.libdevice as ld
from triton.language.extra.cuda.libdevice import tanh
import triton.language.extra.cuda.libdevice as cuda_ld
--- imports that are tried
try:
    from triton.language.extra import libdevice
    FOUND = True
except ImportError:
    from triton.language.extra.cuda import libdevice
    FOUND = False
try:
    from triton.language.extra import libdevice as other
except Exception:
    other = None
try:
    from triton.language.extra.libdevice import tanh as fast_tanh
except ImportError:
    try:
        from triton.language.extra.cuda.libdevice import tanh as fast_tanh
    except ImportError:
        fast_tanh = None
--- parts of modules and facts that are tried
try:
    rounded = tl.math.rint
except AttributeError:
    rounded = None
try:
    SMS = torch.cuda.get_device_properties(0).multi_processor_count
    MAJOR = torch.cuda.get_device_capability()[0]
except Exception:
    SMS = 108
    MAJOR = 8
--- packages that may be absent
try:
    import flash_attn
    from flash_attn.ops import a as attend, b
    HAS_FLASH: bool = True
except (ImportError, ModuleNotFoundError) as error:
    import warnings
    warnings.warn("no flash_attn")
    HAS_FLASH = False
    attend = None
try:
    import xformers.ops as ops
except Exception:
    ops = None
else:
    HAS_OPS = True
class Guarded(nn.Module):
    def forward(self, x): return attend(x) if HAS_FLASH else x
--- packages that are asked for
import importlib.util
from importlib.util import find_spec
HAS_FLASH = importlib.util.find_spec("flash_attn") is not None
HAS_OPS = bool(find_spec("xformers.ops"))
if find_spec("triton") is None: raise ImportError("it needs triton")
KIND = "flash" if find_spec("flash_attn") else "own"
HAS_NONE = not find_spec("xformers")
--- a guard that fails or speaks
try:
    from triton.language.extra import libdevice
except ImportError as error:
    print(f"no libdevice: {error}", error)
    raise ImportError("a newer Triton is needed") from error
try: import flash_attn
except ImportError as error: raise
--- an allocator that may be absent
def memory(size, alignment, stream): return torch.empty(size, device="cuda", dtype=torch.int8)
try: triton.set_allocator(memory)
except Exception: pass
if hasattr(triton, "set_allocator"): triton.set_allocator(memory)
--- kernels that are compiled beforehand
@triton.jit
def first(x, n: tl.constexpr): tl.store(x, n)
class Warm(nn.Module):
    def __init__(self):
        super().__init__()
        first.warmup(torch.float32, n=4, grid=(1,))
    def forward(self, x):
        first.warmup(x, n=4, grid=(1,), num_warps=4)
        first[(1,)](x, n=4)
        return x
--- private names of torch that are common
from torch.nn import init
from torch.nn.init import _calculate_fan_in_and_fan_out as fan
from torch.nn.modules.utils import _pair, _triple
import torch.nn.modules.utils as u
def f(k): return _pair(k) + _triple(k), u._ntuple(2)(k)
def g(w):
    fan_in, _ = nn.init._calculate_fan_in_and_fan_out(w)
    return fan(w), init._calculate_correct_fan(w, "fan_in"), 1 / math.sqrt(fan_in)
--- kernels
LOG2E = tl.constexpr(1.44)
@triton.jit
def activated(x, ACT: tl.constexpr):
    v = tl.load(x)
    if ACT == "relu":
        v = tl.maximum(v, 0.0)
    for i in range(0, 4):
        v += float(i)
    for i in tl.static_range(3):
        v = v + i
    acc = tl.zeros((16,), dtype=tl.float32)
    acc = acc.to(x.dtype.element_ty)
    tl.store(x, v * math.pi + float("inf") + LOG2E)
@triton.jit
def mul(a, b):
    return a * b
@triton.jit
def reduced(x, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    tl.store(x, tl.reduce(v, 0, mul))
@triton.jit
def mapped(x, n: "i32", f: "tl.constexpr"): tl.store(x, f(tl.load(x)))
@triton.jit
def added(x, n, B: tl.constexpr):
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
@triton.jit
def pipelined(x, n, B: tl.constexpr):
    for i in tl.range(0, n, num_stages=2):
        x += B * i.to(tl.int64)
    z = max(n, 4) + min(n, 2) + abs(n) + tl.cdiv(n, B)
    tl.store(x, z)
@triton.jit
def specialised(x):
    with tl.async_task([0]):
        tl.store(x, 1)
--- a constant expression
@tl.constexpr
def accumulates_in(dtype): return tl.float32 if dtype.is_fp16() else dtype
--- texts of kernels that look like others
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
class Kernels:
    @staticmethod
    @triton.jit
    def k(x):
        """Not `def f(x)`, but:

        def k(x):
            pass
        """
        tl.store(x, 1)
--- launches
def plain(x):
    B, C, F = x.shape
    kern[(B,)](x, F)
    kern[(triton.cdiv(x.numel(), 64), 1, 1)](x, B=64, num_warps=4)
def with_a_lambda(x):
    grid = lambda meta: (triton.cdiv(x.numel(), meta["B"]), x.shape[0])
    kern[grid](x, B=64)
def with_a_function(x):
    def grid(META):
        """Grid."""
        n = x.size(0) * x.shape[-1]
        return (triton.cdiv(n, META["B"]),)
    kern[grid](x, B=64)
def with_a_name(x):
    run = kern[(1,)]
    run(x, B=4)
def sized(x): kern[lambda m: (x.numel() * x.size(0) // m["B"],)](x)
def launch(k, grid, *args): k[grid](*args)
def through_a_function(x): launch(kern, (1,), x)
def handed_a_lambda(x): launch(kern, lambda m: (triton.cdiv(x.numel(), m["B"]),), x)
--- grids that call functions
def half(n): return n if n < 2 else half(n // 2)
def odd(n): return n > 0 and even(n - 1)
def even(n): return n == 0 or odd(n - 1)
def f(x): kern[lambda m: (half(x.numel()) + odd(x.dim()),)](x)
--- tuning
def cfgs():
    out = []
    for b, w in itertools.product([64, 128], [2, 4]):
        out.append(triton.Config({"B": b}, num_warps=w, num_stages=2))
    return out
CONFIGS = [triton.Config({"B": b}, num_warps=w) for b in (64, 128) for w in (2, 4)]
@triton.autotune(configs=cfgs(), key=["n"], reset_to_zero=["o"])
@triton.jit
def q(x, o, n, B: tl.constexpr): tl.store(o, tl.load(x))
@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def q2(x, n, B: tl.constexpr): tl.store(x, n)
--- arguments of tuners by name
more = {}
rest = {"warmup": 5, "rep": 10}
@triton.autotune(configs=[triton.Config({"B": 64}, **{"num_warps": 4})], key=["n"], **more)
@triton.jit
def q(x, n, B: tl.constexpr): tl.store(x, n)
@triton.autotune(configs=[triton.Config({"B": 64})], key=["n"], **more, **rest)
@triton.jit
def q2(x, n, B: tl.constexpr): tl.store(x, n)
--- pruning
def prune(configs, named_args, **kwargs):
    major, minor = torch.cuda.get_device_capability()
    shared = torch.cuda.get_device_properties(0).shared_memory_per_block
    return [c for c in configs if c.kwargs["B"] <= named_args["n"] and c.kwargs["B"] <= major * 64 < shared]
@triton.autotune(configs=[], key=["n"], prune_configs_by={"early_config_prune": prune})
@triton.jit
def q(x, n, B: tl.constexpr): tl.store(x, n)
--- heuristics
@triton.heuristics({"EVEN": lambda args: args["n"] % args["B"] == 0, "B": lambda args: min(1024, triton.next_power_of_2(args["n"]))})
@triton.jit
def q(x, n, EVEN: tl.constexpr, B: tl.constexpr): tl.store(x, n)
@triton.heuristics(values={"B": lambda a: max(16, int(math.ceil(a["n"] / 4)))})
@triton.jit
def q2(x, n, B: tl.constexpr): tl.store(x, n)
--- hooks
@triton.autotune(configs=[], key=["n"], pre_hook=lambda n, reset_only: n["o"].zero_(), post_hook=lambda n, exception: n["o"].fill_(0))
@triton.jit
def q(o, n): tl.store(o, n)
@triton.autotune([], ["n"], None, None, None, lambda n, reset_only: n["o"].zero_())
@triton.jit
def q2(o, n): tl.store(o, n)
c = triton.Config({"B": 64}, 4, 3, 1, None, lambda n: n["o"].zero_())
def set_block(nargs): nargs["desc"].block_shape = [nargs["B"], 64]
c = triton.Config({"B": 64}, num_warps=4, pre_hook=set_block)
--- configurations from a function
def sizes(b):
    made = {"B": b}
    made.update(W=4)
    return made
c = triton.Config(sizes(64), num_warps=4)
--- records
@dataclass(frozen=True)
class Record:
    rows: int
    a: int = 1
    b: list = field(default_factory=list)
    def total(self):
        return self.a + len(self.b)
class Plain:
    BLOCK = 64
    def __init__(self, a):
        self.a = a
cfg = Plain(1)
cfg.a = 2
--- tables
SETTINGS = {"BLOCK": 64, "warps": 4}
CONFIG: Dict[str, int] = {"BLOCK": 64}
CONFIG["warps"] = 4
CONFIG.update(stages=2)
if torch.cuda.is_available():
    CONFIG["warps"] = 8
ACT = {"relu": 0, "gelu": 1}
DT = {torch.float32: tl.float32, torch.float16: tl.float16}
def f(x):
    kern[(1,)](x, B=SETTINGS["BLOCK"], **{"num_warps": 4})
    kern[(CONFIG["warps"],)](x, B=CONFIG["BLOCK"])
--- containers of a function
def f(x):
    sizes = {"n": x.shape[0]}
    sizes["m"] = 3
    sizes.update(k=4)
    parts = []
    parts.append(x)
    return parts
def g(a, b=1, *, c=(), d=None):
    parts = []
    parts.append(a)
    return parts
--- functions with gradients
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
class Cast(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x): return x
--- modules
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
--- modules that remember
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
        if hasattr(self, "calls") or getattr(self, "calls", None):
            self.calls = getattr(self, "calls", 0) + 1
        return self._buf
    def extra_repr(self): return "n"
--- modules that change their parts
class Net(nn.Module):
    BLOCK: int = 64
    __constants__ = ["a"]
    def __init__(self):
        super().__init__()
        lin = nn.Linear(3, 4)
        lin.weight.data = torch.zeros(4, 3)
        self.weight, self.bias = lin.weight, lin.bias
        self.__hidden = 1
    def __own(self, __x): return __x + self.__hidden
    def f(self):
        self.lin.weight = self.lin.bias = None
        self.lin.weight.requires_grad = False
        self.lin.weight.data = torch.zeros(2)
        self.descriptor.block_shape = [16, 16]
        def keep(value): self.kept = value
        keep(1)
    @property
    def size(self): return 3
    @staticmethod
    def s(x): return x
    @classmethod
    def make(cls): return cls()
--- attributes whose names are put together
class N(nn.Module):
    def __init__(self, depth: int, sizes, names):
        super().__init__()
        for i in range(depth):
            setattr(self, f"l{i}", nn.Parameter(torch.randn(3)))
            self.register_buffer(f"scale_{i}", torch.ones(3))
        for i, (a, b) in enumerate(sizes):
            setattr(self, "b" + str(i + 1), nn.Parameter(torch.randn(a, b)))
        for gate in ("i", "f", "o"):
            setattr(self, f"W_{gate}", nn.Parameter(torch.randn(3)))
            setattr(self, gate, None)
        for name in names:
            setattr(self, f"_conv_{name}", name)
        setattr(self, "eps", 1e-5)
    def forward(self, x):
        for i, part in enumerate(self.parts):
            kern[(1,)](getattr(self, f"l{i}"), B=4)
        for gate, other in (("i", 1), ("f", 2)):
            kern[(1,)](getattr(self, f"W_{gate}"), B=other)
        return [getattr(self, name) for name in ("eps", "i")], getattr(x, "_mine", None), hasattr(x, "_version")
--- own decorators
def contiguous(fn):
    @functools.wraps(fn)
    def wrapper(ctx, *args, **kwargs):
        return fn(ctx, *(a.contiguous() if isinstance(a, torch.Tensor) else a for a in args), **kwargs)
    return wrapper
def named(name):
    def mark(fn): return fn
    return mark
@contiguous
def f(ctx, x): return x
class Fn(torch.autograd.Function):
    @staticmethod
    @contiguous
    @named("forward")
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x): return x
@torch.compiler.disable
def g(x): return x if torch.compiler.is_compiling() else x
--- layers of torch with a forward of their own
class Scaled(nn.Linear):
    def __init__(self, rows, cols):
        super().__init__(rows, cols, bias=False)
        self.scale = nn.Parameter(torch.ones(1))
    def forward(self, x): return x
class Stack(nn.ModuleList):
    def forward(self, x): return x
--- parts of torch around layers
import copy
import einops
from einops import rearrange
from collections.abc import Sequence, Callable
from contextlib import nullcontext
from packaging import version
from packaging.version import parse
from torch.nn.common_types import _size_2_t
from torch.nn.utils import weight_norm
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.rnn import pad_sequence, pack_padded_sequence
NEW = version.parse(torch.__version__) >= parse("2.4")
class N(nn.Module):
    def __init__(self, size: _size_2_t, layer: nn.Module, act: Callable = None):
        super().__init__()
        self.layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(3)])
        self.conv = weight_norm(nn.Conv1d(3, 3, 1))
        self.other = torch.nn.utils.spectral_norm(nn.Linear(3, 3))
    def extra_repr(self): return f"{self.__class__.__name__}"
    def f(self, x, kind: Optional[type] = None):
        guard = torch.cuda.device(x.device) if x.is_cuda and not isinstance(x, type) else nullcontext()
        with guard:
            with torch.no_grad() if self.training else nullcontext():
                kern[(1,)](x, B=4)
        return rearrange(x, "b (h d) -> b h d", h=2), einops.repeat(x, "b d -> b r d", r=2)
--- Triton's own names for the same
@triton.jit
def k(x, N: tl.constexpr):
    rounds: tl.constexpr = tl.standard._log2(N)
    kind: tl.constexpr = tl.core.get_int_dtype(x.dtype.primitive_bitwidth, signed=True)
    wide = tl.core._unwrap_if_constexpr(kind)
    tl.store(x, tl.core.load(x) + rounds)
if hasattr(tl, "_experimental_make_tensor_descriptor"):
    describe = tl._experimental_make_tensor_descriptor
--- deletions
def f(x, shape):
    sizes, made = list(x.shape), {"a": 1}
    del sizes[0], made["a"]
class N(nn.Module):
    def f(self): del self.kept
--- indices that a function computes
def order(x): return torch.tensor([0, 1], device=x.device)
def made(x):
    n = x.numel()
    return lambda m: (triton.cdiv(n, m["B"]),)
class Grid:
    def __init__(self, n): self.n = n
    def __call__(self, m): return (triton.cdiv(self.n, m["B"]),)
def f(x):
    grid = made(x)
    kern[grid](x, B=4)
    kern[made(x)](x, B=4)
    kern[Grid(3)](x, B=4)
    return x[order(x)], x[order(x), :2]
--- a choice of arguments for tuners
FAST = os.environ.get("FAST") == "1" and "SLOW" not in os.environ
more = {"cache_results": True} if FAST else {}
@triton.autotune(configs=[triton.Config({"B": 64})], key=["n"], **more)
@triton.jit
def q(x, n, B: tl.constexpr): tl.store(x, n)
--- checks of inputs
def f(x):
    assert x.is_cuda and x.is_contiguous(), f"need {x.device!r:>10}"
    if x.dtype not in (torch.float32, torch.float16):
        raise ValueError(f"bad {type(x)}")
    assert x.data_ptr() % 16 == 0
    assert x.stride(0) == 1
    assert type(x) is torch.Tensor
    del x
--- alignments
ALIGN = 16
def f(x, y):
    assert x.data_ptr() % ALIGN == 0 and not x.data_ptr() & 15 and x.data_ptr() % 1024 == 0
    return x.data_ptr() != y.data_ptr() == x.data_ptr()
--- tables of addresses
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
--- computing with torch
def f(x):
    x = F.relu(x); y = torch.softmax(x, dim=-1) @ x.t(); y += 1; y[0] = 2; y[..., 1:] = 0; return torch.einsum("ij,jk->ik", x, y).sum().item()
def attend(x): return nn.functional.scaled_dot_product_attention(x, x, x)
def joined(x):
    with torch.autocast("cuda", enabled=False):
        return torch.cat([x, x])
def sized(x):
    kern[(triton.cdiv(torch.numel(x), 64),)](x, B=64)
    kern[lambda m: (triton.cdiv(torch.numel(x), m["B"]),)](x, B=64)
def cast(x): return x.float().half().to(torch.float32).type_as(x).contiguous().is_contiguous()
--- allocating
HALF = 7 // 2  # a comment with // and "eval("
def f(x):
    """We eval nothing, open nothing, try nothing: `exec(open(x))`, __import__, getattr(x, "__class__")."""
    x, mid, size = x.contiguous(), torch.empty_like(x), math.sqrt(2.0)
    return x.view(mid.shape).half(), size
def g(x):
    out = torch.empty((x.shape[0], 4), device=x.device, dtype=x.dtype)
    out.requires_grad = False
    for i in range(3):
        kern[(1,)](out[i], B=4)
    return out.view_as(out).permute(1, 0).contiguous()
--- contexts
@torch.no_grad()
def f(x): return x
@torch.inference_mode()
def g(x):
    with torch.no_grad(), torch.cuda.device(x.device):
        with torch.accelerator.device_index(x.device.index): return torch.accelerator.current_device_index()
--- python's own
def f(x):
    dims = [d for d in x.shape if d > 1]
    n = sum(s for s in dims)
    y = list(map(int, x.shape)); z = sorted(dims, key=lambda d: -d); w = max(dims, key=lambda d: d)
    match x.dim():
        case 2: return x
        case _: return torch.Size(y)
def typed(x: torch.Tensor, shape: Tuple[int, ...]) -> Optional[torch.Tensor]:
    n: int = math.prod(shape); m = math.ceil(math.log2(n)); return x.view(n // 2, -1)
def outer(x):
    def inner(y):
        return y * 2
    return inner(x)
def folded(x): return functools.reduce(operator.mul, x.shape, 1), operator.floordiv(7, 2)
print("loaded")
--- caches
@functools.lru_cache(maxsize=None)
def sm(index): return torch.cuda.get_device_properties(index).multi_processor_count
@functools.lru_cache
def processors() -> int: return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
@lru_cache
def block(n: int) -> int: return min(1024, triton.next_power_of_2(n))
@functools.cache
def plan(rows, cols):
    parts = []
    for r in range(rows):
        parts.append(r * cols)
    return tuple(parts)
--- settings of torch
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
torch.backends.cudnn.benchmark = True
torch.set_float32_matmul_precision("high")
--- questions about the device
from triton.runtime import driver
props = triton.runtime.driver.active.utils.get_device_properties(0)
same = driver.active.utils.get_device_properties(0)
DEVICE = triton.runtime.driver.active.get_active_torch_device()
def is_cuda(): return triton.runtime.driver.active.get_current_target().backend == "cuda"
def f(x): return torch.cuda.get_device_properties(x.device).multi_processor_count, torch.version.cuda, torch.__version__
def sm(x):
    if x.device.type == "cuda":
        return torch.cuda.get_device_properties(x.device).multi_processor_count
    return torch.xpu.get_device_properties(x.device).gpu_eu_count
--- descriptors
from triton.tools.tensor_descriptor import TensorDescriptor
def f(x): return TensorDescriptor.from_tensor(x, [16, 16])
def alloc(size: int, alignment: int, stream: Optional[int]): return torch.empty(size, device="cuda", dtype=torch.int8)
triton.set_allocator(alloc)
--- functions for a benchmark
def get_inputs(): return [torch.randn(2, 2).cuda()]
def get_init_inputs(): return []
--- imports that nothing uses
import sys, time, random
import types, inspect, contextlib, copy, re, json
--- a main block
if __name__ == "__main__":
    import time, os
    try:
        m = ModelNew().cuda(); print(m(torch.randn(3)).tolist())
    except Exception as e:
        print(e)
--- a main block that would fail
if __name__ == "__main__":
    import sys
    @missing
    def main(): return [undefined for a in sys.argv]; main()  # pass
CONSTANT = 1
--- locals named as builtins
def f(x, eval=False, open=None, input=None):
    return x if eval else input
class N(nn.Module):
    kind = "relu"
    def forward(self, input):
        vars = 3; id = 4; hash = 5
        return input * vars * id * hash
    def f(self, x, data, type_=None):
        squares = [type * e for type, e in enumerate(x.shape)]
        return (lambda getattr=1: getattr)(), squares, [s for s in squares if (last := s)], last
def g(größe, λ=1): return größe * λ
--- names that are bound later
def later(x): return after(x) + LATER
def after(x): return LATER
LATER = 1
def f(n):
    def odd(m): return m > 0 and even(m - 1)
    def even(m): return m == 0 or odd(m - 1)
    return odd(n)
--- annotations that are never evaluated
from __future__ import annotations
def f(x: Missing, y: "Other") -> Absent:
    z: Nothing = x
    return z
--- numbers
def f(x, n: int):
    B, C, H = x.shape
    total = int(np.prod(x.shape)) + int(np.prod(x.shape[1:])) + np.gcd(B, x.size(0)) + int(np.ceil(n / 64))
    return total * np.sqrt(H) * np.log2(float(C)) * np.pi * -np.inf, np.ceil(x.numel() / 4)
--- numbers of a module
class N(nn.Module):
    def __init__(self, d: int, heads: int = 4, eps=1e-5):
        super().__init__()
        self.head_dim = d // heads
        self.scale = 1.0 / np.sqrt(self.head_dim)
    def forward(self, x):
        s = np.exp2(self.scale) if self.head_dim > 1 else 1.0
        for k in range(3):
            s += np.sqrt(k)
        s += sum([np.sqrt(k) for k in range(3)]) + sum(np.sqrt(k) for k, part in enumerate(self.parts))
        kern[lambda meta: (int(np.ceil(x.numel() / meta["B"])),)](x, B=4)
        return s
--- enumerations
from enum import IntEnum, auto
class Act(enum.Enum):
    RELU = "relu"
    GELU = "gelu"
class Stage(IntEnum):
    ONE = auto()
    TWO = auto()
def f(act: Act = Act.RELU): return act is Act.GELU, Act("relu").value, Stage.ONE.name
--- abstract classes
from abc import ABC, abstractmethod
class Base(nn.Module, ABC):
    @abstractmethod
    def forward(self, x): ...
class Other(abc.ABC):
    @property
    @abc.abstractmethod
    def size(self): ...
--- collections
from collections import namedtuple, OrderedDict, defaultdict, deque, Counter
Shape = namedtuple("Shape", ["rows", "cols"])
def f(x):
    seen = defaultdict(list)
    seen[1].append(Shape(*x.shape).rows)
    return OrderedDict(a=1), deque([1]), Counter(x.shape), collections.defaultdict(int)
--- variables and warnings
warnings.filterwarnings("ignore", category=UserWarning)
DEBUG = os.environ.get("DEBUG", "0") == "1"
BLOCK = int(os.getenv("BLOCK", "64"))
LEVEL = os.environ["LEVEL"] if DEBUG else ""
def f(x):
    if DEBUG: warnings.warn(f"shape {x.shape}")
--- loggers
from logging import getLogger
logger = logging.getLogger(__name__)
log = getLogger("kernels")
log.info("loaded")
def f(x):
    logger.debug("GEMS %s", x.shape)
    logging.getLogger().warning("slow")
--- formats
print("{}".format(1))
name = "block {0:>{1}}".format(1, 2)
text = "{x:.2f} {{0.a}}".format(x=1.0)
text = "%(size)s" % {"size": 3}
text = format(3, "d") + f"{3:>4}"
'''
ACCEPTED = dict(part.split("\n", 1) for part in _TEXT.removeprefix("\n--- ").split("\n--- "))
