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


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    return subprocess.run([sys.executable, "-c", program, *arguments], env=environment, capture_output=True, text=True)


@pytest.mark.exhaustive
@pytest.mark.processes
def test_a_tied_output_layer_follows_the_embedding(tmp_path):
    """Llama's; it went on with the dummy weights of vLLM's start, and every token was as likely as any other."""
    done = run(TIED, str(tmp_path / "store"))
    assert done.stdout.strip().endswith("same"), done.stderr[-2000:]


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
def test_an_engine_gives_way_with_all_its_threads():
    done = run(GIVES_WAY)
    assert done.stdout.strip().endswith("[19, 19]"), done.stderr[-2000:]
