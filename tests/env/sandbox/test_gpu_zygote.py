# SPDX-License-Identifier: Apache-2.0
"""Programs in runners of the real zygote, in the real jail of a GPU, on a machine without one.

The zygote has imported `dill`, as verl's processes do, and Triton's cache is empty.
"""

import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from tests.env.gyms import pretend
from tests.env.pretend.pretend_cuda import PretendCuda
from tests.env.sandbox.test_gpu_jail import make_nodes
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.judge.processes.zygote import Zygote
from verl_kernel.env.options import GymOptions
from verl_kernel.env.sandbox import gpu_isolation
from verl_kernel.env.sandbox.scratch import Scratch

_LOAD = {
    **{"entry": "ModelNew", "seed": 0, "specs": [], "state": {}, "constants": {}, "structured": []},
    **{"traced": False, "describe": None, "memory": False},
    "init": {"list": [{"list": []}, {"dict": {}}]},
}
_COMPILE = """
import tempfile
import triton
import triton.language as tl
from torch import nn
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        signature = {"x": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
        source = ASTSource(fn=double, signature=signature, constexprs={"BLOCK": 1024})
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
        key = getattr(triton.runtime.cache, "triton_key", None) or triton.compiler.compiler.triton_key
        print(key() == triton.__version__, compiled.asm["cubin"][:4] == b"\x7fELF", tempfile.gettempdir(), flush=True)
"""
_ATTEMPT = """
import os
import socket
from torch import nn

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        %s
        print("escaped", flush=True)
"""
_REMEMBERED = """
import gc
import os
from torch import nn

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        gc.unfreeze()
        own = os.getcwd()
        for holder in gc.get_objects():
            for text in gc.get_referents(holder):
                if type(text) is str and text.startswith(os.path.dirname(own)) and own not in text:
                    print(type(holder).__name__, text, flush=True)
"""


@pytest.fixture(scope="module")
def zygote():
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        home, dev = Path(name) / "home", Path(name) / "dev"
        home.mkdir()
        make_nodes(Path(name))
        Path(name).chmod(0o755)  # runners of root's judges may be other users
        pretend(patch)
        patch.setenv("TMPDIR", str(home))
        patch.setattr("tempfile.tempdir", str(home))
        patch.setenv("PRETEND_DEV", str(dev))
        patch.setenv(gpu_isolation.MINOR, "1")
        with closing(Zygote(PretendCuda())) as zygote:
            yield zygote


@pytest.fixture
def load(zygote):
    """Load a program into a runner: the answer, the mechanisms in force, what was printed, and its directory."""

    def run(source):
        with closing(Scratch(source)) as scratch, closing(SharedMemory.create(4096)) as memory:
            runner = zygote.fork(scratch.path, memory, GymOptions(device="cpu"))
            isolation, answer = runner.ask(None, 60)["isolation"], runner.ask({"load": _LOAD}, 120)
            runner.finish()
            return answer, isolation, runner.output.decode(), scratch.path

    return run


@pytest.mark.slow
def test_triton_compiles_for_a_gpu(load):
    answer, _, printed, scratch = load(_COMPILE)
    assert "failure" not in answer, answer
    # Some versions warn before. The key of Triton's cache is no hash of all its files, which takes a third of a second.
    assert printed.splitlines()[-1].split() == ["True", "True", scratch]


def test_no_object_remembers_the_directory_of_the_zygote(load):
    answer, _, printed, _ = load(_REMEMBERED)
    assert ("failure" in answer, printed) == (False, ""), answer


@pytest.mark.parametrize("needs, attempt", [
    ("seccomp", "socket.socket(socket.AF_INET)"),
    ("landlock", "os.open(os.environ['PRETEND_DEV'] + '/nvidia0', os.O_RDWR)"),
])  # fmt: skip
def test_a_candidate_does_not_get_out(needs, attempt, load):
    """The mechanisms are in force; what each of them refuses is in test_gpu_jail.py."""
    answer, isolation, printed, _ = load(_ATTEMPT % attempt)
    if needs not in isolation:
        pytest.skip(f"this machine offers no {needs}")
    assert answer["failure"]["type"] == "PermissionError", answer
    assert not printed, answer


@pytest.mark.slow
def test_the_nodes_of_its_own_gpu_are_open_to_a_candidate(load):
    attempt = "[os.open(f\"{os.environ['PRETEND_DEV']}/{name}\", os.O_RDWR) for name in ('nvidia1', 'nvidiactl')]"
    answer, _, printed, _ = load(_ATTEMPT % attempt)
    assert printed.split() == ["escaped"], answer
