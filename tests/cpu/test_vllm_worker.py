# SPDX-License-Identifier: Apache-2.0
"""Layers of vLLM after new weights have arrived; in a process of its own, since vLLM's groups are one a process."""

import os
import subprocess
import sys

import pytest

TIED = """
import sys, torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from verl_kernel.cpu.vllm_worker import pack_tied_heads

with set_current_vllm_config(VllmConfig()):
    init_distributed_environment(1, 0, f"file://{sys.argv[1]}", 0, backend="gloo")
    initialize_model_parallel(1, 1)
    torch.manual_seed(0)
    model = torch.nn.Module()
    model.embed = VocabParallelEmbedding(128, 64)
    model.head = ParallelLMHead(128, 64).tie_weights(model.embed)
    model.embed.weight.data.normal_()
    for layer in (model.embed, model.head):
        layer.quant_method.process_weights_after_loading(layer)
    x = torch.randn(3, 64)
    # As a reload does it, which brings the head no weight of its own.
    model.embed.weight.data.normal_()
    model.embed.quant_method.process_weights_after_loading(model.embed)
    pack_tied_heads(model)
    for layer in (model.embed, model.head):
        torch.testing.assert_close(layer.quant_method.apply(layer, x), x @ model.embed.weight.T, rtol=1e-4, atol=1e-4)
print("same")
"""


"""Llama's head went on with the dummy weights of vLLM's start, and every token was as likely as any other."""
GIVES_WAY = """
import os, threading
from verl_kernel.cpu.vllm_worker import give_way

done = threading.Event()
thread = threading.Thread(target=done.wait, daemon=True)
thread.start()
give_way()
print([os.getpriority(os.PRIO_PROCESS, one) for one in (os.getpid(), thread.native_id)])
done.set()
"""


@pytest.mark.exhaustive
@pytest.mark.processes
@pytest.mark.parametrize(("program", "said"), [(TIED, "same"), (GIVES_WAY, "[19, 19]")], ids=["tied", "gives way"])
def test_heads_follow_their_embedding_and_engines_give_way(tmp_path, program, said):
    environment = {**os.environ, "VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    command = [sys.executable, "-c", program, str(tmp_path / "store")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.strip().endswith(said), done.stderr[-2000:]
