# SPDX-License-Identifier: Apache-2.0
"""The GPU device: it runs real kernels and measures real times.

Three processes use CUDA differently. The judge has a context for references and comparisons. The zygote must have
none, because a context does not survive a fork: it loads Triton's driver module and nothing that contacts the device.
The runner creates its context after the fork, inside its jail.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from verl_kernel.env.devices.cuda import memory_shares
from verl_kernel.env.devices.cuda.driver import gpu_state
from verl_kernel.env.devices.cuda.lock import SharedDevice, Sharing
from verl_kernel.env.devices.op_recorder import OpRecorder
from verl_kernel.env.options import GymOptions
from verl_kernel.env.sandbox import gpu_isolation
from verl_kernel.env.sandbox.isolation import IsolationProfile
from verl_kernel.env.trace import TraceEvent
from verl_kernel.errors import EnvironmentNotReady, InfraError

if TYPE_CHECKING:  # imported on first use, in `stopwatch`
    from verl_kernel.env.devices.cuda.stopwatch import Stopwatch

_synchronize: Callable[[], None] = getattr(torch._C, "_cuda_synchronize", torch.cuda.synchronize)
"""Device-wide synchronisation, bound before any candidate is loaded, so that no candidate can replace it."""


class CudaDevice(SharedDevice):
    """The GPU that torch calls `cuda` (its current device)."""

    name = "cuda"
    timing_source = "cuda_event"
    exit_s = 60.0  # the driver destroys the context in this time, and may have to free gigabytes

    def zygote_env(self) -> dict[str, str]:
        """Return variables that name the GPU and let torch detect it without initialising CUDA."""
        fixed = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "CUDA_MODULE_LOADING": "LAZY", "OMP_NUM_THREADS": "1"}
        return {**gpu_isolation.kept(os.environ), **self._own_gpu(), **fixed}

    def isolation(self) -> IsolationProfile:
        """Return the isolation profile: the driver's files, the device nodes of the judge's GPU, and compilers."""
        return gpu_isolation.profile(os.environ)

    def setup(self) -> None:
        """Create the CUDA context of a judge.

        Raises:
            EnvironmentNotReady: there is no GPU, or Triton interprets kernels in this process.
        """
        if os.environ.get("TRITON_INTERPRET") == "1":
            raise EnvironmentNotReady("device cuda needs compiled kernels: unset TRITON_INTERPRET")
        if not torch.cuda.is_available():
            raise EnvironmentNotReady("device cuda needs a GPU and torch finds none here: use device cpu")
        torch.cuda.init()  # type: ignore[no-untyped-call]

    def adopt(self, options: GymOptions) -> None:
        """Take the judge's lock on the GPU and its share of the memory.

        Raises:
            EnvironmentNotReady: the GPU is too small for the judges and runners that share it, or has no lock.
        """
        self.sharing = Sharing(self.uuid, options)
        self._beside, self._alone = memory_shares.shares(torch.cuda.mem_get_info()[1] >> 20, options)
        self._take(self._beside)

    def _take(self, share: memory_shares.Shares) -> None:
        self._share = share
        torch.cuda.set_per_process_memory_fraction((share.judge << 20) / torch.cuda.mem_get_info()[1])

    def preload(self) -> None:
        """Load the compiler and the driver module, which is a C extension, without a context.

        Raises:
            EnvironmentNotReady: a context exists.
        """
        import torch.profiler
        import triton
        import triton.backends.nvidia.compiler
        from triton.backends.nvidia.driver import CudaDriver
        from triton.runtime.driver import driver

        from verl_kernel.env.compilation.compiler import compile_trial_kernel, driver_of
        from verl_kernel.env.compilation.targets import TARGETS
        from verl_kernel.env.seeding import seed_everything
        from verl_kernel.env.tamper import tripwire

        seed_everything(0)  # NumPy imports its generator when it is first used
        with tempfile.TemporaryDirectory() as folder, triton.knobs.cache.scope():
            triton.knobs.cache.dir = folder
            # Whatever the GPU: every runner would load the same at its first launch, and hash all of Triton.
            driver.set_active(driver_of(TARGETS["sm_90"]))
            compile_trial_kernel()
        driver.set_active(CudaDriver())
        tripwire.install()
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            raise EnvironmentNotReady("the zygote has a CUDA context, which no runner could use after its fork")

    def enter(self, memory_mb: int) -> None:
        """Create the runner's context, with a limit on its memory.

        Raises:
            EnvironmentNotReady: the driver refuses the context, as it would in a jail that is too strict.
        """
        try:
            torch.cuda.init()  # type: ignore[no-untyped-call]
            _, total = torch.cuda.mem_get_info()
            torch.cuda.set_per_process_memory_fraction(min(1.0, (memory_mb << 20) / total))
            _synchronize()
            _ = self.stopwatch
        except RuntimeError as exc:
            raise EnvironmentNotReady(f"a runner gets no CUDA context: {exc}") from exc

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of these values and strides on the GPU; `tensor` itself if it is there already."""
        if tensor.is_cuda:
            return tensor
        there = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")
        return there.copy_(tensor)

    def place(self, model: Any) -> Any:
        """Move parameters and buffers to the GPU."""
        return model.to("cuda") if isinstance(model, torch.nn.Module) else model

    def inputs_here(self) -> AbstractContextManager[Any]:
        """Let `torch.rand` and similar functions draw on the GPU, about 100 times faster than on a host core."""
        return torch.device("cuda")

    def synchronize(self) -> None:
        """Wait for the whole device."""
        _synchronize()

    def poison(self, like: Sequence[torch.Tensor]) -> None:
        """Overwrite the blocks that the caching allocator would return for these sizes."""
        from verl_kernel.env.devices.poison import poison_free_blocks

        poison_free_blocks([tensor for tensor in like if tensor.is_cuda])

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Share the GPU, and release the allocator's unused cached memory at the end."""
        with super().shared():
            try:
                yield
            finally:
                torch.cuda.empty_cache()

    @property
    def is_divided(self) -> bool:
        """Whether other judges may use its memory now, so that this one could have more alone."""
        return self._share != self._alone

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Take the GPU with all memory that its other judges do not keep."""
        with self.sharing.alone():
            torch.cuda.empty_cache()
            self._take(self._alone)
            try:
                yield
            finally:
                torch.cuda.empty_cache()
                self._take(self._beside)

    def granted(self, needed_bytes: int, options: GymOptions) -> GymOptions:
        """Return the options with the memory that a runner gets now.

        Raises:
            torch.OutOfMemoryError: a part of a divided GPU is less than twice what the task needs.
        """
        if self.is_divided and 2 * needed_bytes > self._share.runner << 20:
            raise torch.OutOfMemoryError("the task is too large for one of the judges that share the GPU")
        return replace(options, memory_mb=self._share.runner)

    def misfit(self, needed_bytes: int, options: GymOptions) -> str | None:
        """Return why a runner's memory is too small for the task and the clock's buffers; None if it suffices."""
        return memory_shares.misfit(needed_bytes + self.stopwatch.flush_bytes + memory_shares.TIMED_BYTES, options)

    def grant(self, memory_mb: int) -> None:
        """Check that the GPU has this much memory free.

        Raises:
            InfraError: it has not; a runner that runs out of memory then would not be the candidate's fault.
        """
        free_mb = torch.cuda.mem_get_info()[0] >> 20
        if free_mb < memory_mb:
            raise InfraError(
                f"the GPU has {free_mb} MB free and a runner is granted kernelgym.memory_mb = {memory_mb}: end what "
                "else uses the GPU, or lower it"
            )

    @property
    def cache_bytes(self) -> int:
        """Bytes that the references cached by a judge may take."""
        return (self._beside.judge << 20) // memory_shares.CACHE_SHARE

    def facts(self) -> dict[str, Any]:
        """Return name, UUID, driver, CUDA version, compute capability, and the GPU nodes that a runner may open."""
        properties = self.properties
        return {
            "gpu_name": properties.name,
            "gpu_uuid": self.uuid,
            "driver": gpu_state(self.uuid)["driver"],
            "cuda": torch.version.cuda,
            "capability": f"{properties.major}.{properties.minor}",
            "gpu_nodes": f"nvidia{minor}" if (minor := self._own_gpu().get(gpu_isolation.MINOR)) else "all",
        }

    @contextmanager
    def record(self) -> Iterator[list[TraceEvent]]:
        """Collect the torch ops and launches in the context; launches have no counted cost, as the clock measures."""
        from verl_kernel.env.devices.cuda.launches import EventList, recording

        events = EventList()
        with recording(events), OpRecorder(events):
            yield events

    @contextmanager
    def suppress_launches(self, kept: Sequence[str] = (), only: Sequence[int] | None = None) -> Iterator[None]:
        """Turn launches into no-ops; memory allocated meanwhile holds poison."""
        from verl_kernel.env.devices.cuda.launches import suppressing
        from verl_kernel.env.devices.poison import PoisonedAllocations

        with suppressing(), PoisonedAllocations():
            yield

    def is_compile_error(self, exc: BaseException) -> bool:
        """Whether Triton, its passes or ptxas rejected a kernel."""
        from triton.errors import TritonError

        return isinstance(exc, TritonError) or "PassManager::run failed" in str(exc)

    def is_crash(self, exc: BaseException) -> bool:
        """Whether the context is lost, so that every later call fails; `exc` itself does not matter."""
        try:
            _synchronize()
        except RuntimeError:
            return True
        return False

    @cached_property
    def stopwatch(self) -> Stopwatch:
        """This process's stopwatch."""
        from verl_kernel.env.devices.cuda.stopwatch import Stopwatch

        return Stopwatch()

    @cached_property
    def properties(self) -> Any:
        """Torch's properties of the GPU."""
        return torch.cuda.get_device_properties(torch.cuda.current_device())

    @cached_property
    def uuid(self) -> str:
        """UUID of the GPU as the driver writes it."""
        return f"GPU-{str(self.properties.uuid).removeprefix('GPU-')}"

    def _own_gpu(self) -> dict[str, str]:
        """Return variables that tell a zygote its judge's GPU, by names that stay valid if no other GPU is open.

        A zygote gets them from its judge and must not query the driver. A MIG slice that the caller has not named
        cannot be told from others; then the nodes of all GPUs stay open, as they do if the driver's files are missing.
        """
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            minor = os.environ.get(gpu_isolation.MINOR)
            return {} if minor is None else {gpu_isolation.MINOR: minor}
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
        gpu, name = self._gpu, visible if visible.startswith("MIG-") else self.uuid
        if gpu is None or name not in (gpu.uuid, visible):
            return {}
        return {gpu_isolation.MINOR: gpu.minor, "CUDA_VISIBLE_DEVICES": name}

    @cached_property
    def _gpu(self) -> gpu_isolation.GpuNode | None:
        """The GPU found by UUID or PCI address; if torch does not know the address, one that no GPU has is used."""
        numbers: list[int] = [getattr(self.properties, f"pci_{part}_id", -1) for part in ("domain", "bus", "device")]
        return gpu_isolation.find_gpu(self.uuid, "{:04x}:{:02x}:{:02x}.0".format(*numbers))
