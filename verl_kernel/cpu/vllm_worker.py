# SPDX-License-Identifier: Apache-2.0
"""Weight synchronisation into vLLM's CPU worker, and the worker's priority among the processes on the same cores.

vLLM prepacks weights for oneDNN on a CPU and drops the originals, so writing into its parameters, as verl's
extension does, has no effect there. This extension reloads them in checkpoint format. Select it with
`actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls`.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

from verl_kernel.errors import ConfigError

_LAST = 19
"""The lowest priority; Ray gives its workers, including judges and trainer, 15."""


class CPUWorkerExtension(vLLMColocateWorkerExtension):  # type: ignore[misc]
    """verl's worker extension with a weight update that works on a CPU."""

    def update_weights_from_ipc(
        self, peft_config: dict[str, Any] | None = None, base_sync_done: bool = False, use_shm: bool = False
    ) -> None:
        """Receive all buckets, then reload the model from them.

        Raises:
            ConfigError: for a LoRA adapter by itself; with `model.lora.merge` verl sends weights that contain it.
        """
        if peft_config and base_sync_done:
            raise ConfigError(
                "actor_rollout_ref.model.lora.merge is false, and the CPU platform synchronises no adapter by itself: "
                "set it to true, so that weights arrive with the adapter added"
            )
        give_way()
        weights: list[tuple[str, torch.Tensor]] = []
        receiver = BucketedWeightReceiver(
            zmq_handle=self._get_zmq_handle(), device=torch.device("cpu"), use_shm=use_shm
        )
        # The buffer behind a bucket is closed afterwards, so the weights are cloned.
        receiver.receive_weights(
            on_bucket_received=lambda bucket, is_last: weights.extend((name, t.clone()) for name, t in bucket)
        )
        self.model_runner.reload_weights(weights_iterator=iter(weights), is_checkpoint_format=True)
        pack_tied_heads(self.model_runner.get_model())


def give_way() -> None:
    """Give judges and trainer priority on the processors.

    A step of a small model takes as long for one sequence as for many. An engine that waits decodes more sequences at
    once; an engine with priority would occupy a processor for the few that judges have already answered.
    """
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, int(thread.name), _LAST)


def pack_tied_heads(model: torch.nn.Module) -> None:
    """Prepack the output layers again that share the weight of an embedding.

    A reload contains no separate weight for them, so vLLM keeps the dummy weights that it packed at the start. In
    Llama such a layer exists next to the embedding; in Qwen it is the embedding itself, and both are packed together.
    """
    layers = list(model.modules())
    shared = {id(layer.weight) for layer in layers if type(layer) is VocabParallelEmbedding}
    for layer in layers:
        if isinstance(layer, ParallelLMHead) and id(layer.weight) in shared:
            layer.quant_method.process_weights_after_loading(layer)
