# SPDX-License-Identifier: Apache-2.0
"""Decoding on a CPU: milliseconds of vLLM for a token of every sequence, by the number of keys and values of the model.

Each number has a process of its own, by turns with the others; the model is the quickstart's with its first weights
and fewer tokens.
Usage: python benchmarks/bench_decode.py [--kv-heads 4 2 1] [--sequences 64] [--context 500] [--tokens 200] [--rounds 2]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from random import Random
from typing import Any

VOCABULARY = 640


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kv-heads", type=int, nargs="+", default=[4, 2, 1])
    for key, value in {"sequences": 64, "context": 500, "tokens": 200, "rounds": 2}.items():
        parser.add_argument(f"--{key}", type=int, default=value)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        print(measure(given.kv_heads[0], given.sequences, given.context, given.tokens))
        return
    found: dict[int, list[float]] = {count: [] for count in given.kv_heads}
    for _ in range(given.rounds):
        for count, times in found.items():
            sizes = [f"--{key}={getattr(given, key)}" for key in ("sequences", "context", "tokens")]
            command = [sys.executable, __file__, "--here", f"--kv-heads={count}", *sizes]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            times.append(float(done.stdout.splitlines()[-1]))
    first = statistics.median(found[given.kv_heads[0]])
    print("| keys and values | ms a token | least to most | of the first |", "|---|---|---|---|", sep="\n")
    for count, times in found.items():
        middle = statistics.median(times)
        print(f"| {count} | {middle:.1f} | {min(times):.1f} to {max(times):.1f} | {middle / first:.2f} |")


def measure(kv_heads: int, sequences: int, context: int, tokens: int) -> float:
    """Return the milliseconds of one decoding step of all sequences."""
    engine = _engine(kv_heads, sequences, context + tokens)
    _seconds(engine, sequences, context, 20)
    prefill = _seconds(engine, sequences, context, 1)
    return 1000 * (_seconds(engine, sequences, context, tokens) - prefill) / (tokens - 1)


def _engine(kv_heads: int, sequences: int, length: int) -> Any:
    from verl_kernel import cpu

    cpu.install()
    from vllm import LLM

    from verl_kernel.generated_tasks.tokenizer import train_tokenizer
    from verl_kernel.quickstart.options import WarmStart
    from verl_kernel.quickstart.warm_start import build_model

    with tempfile.TemporaryDirectory() as folder:
        tokenizer = train_tokenizer(["a text"], VOCABULARY)
        build_model(WarmStart(kv_heads=kv_heads), tokenizer, 0).save_pretrained(folder)
        return LLM(
            folder, skip_tokenizer_init=True, dtype="float32", enforce_eager=True, max_model_len=length + 8,
            max_num_seqs=sequences, max_num_batched_tokens=8192, distributed_executor_backend="uni",
        )  # fmt: skip


def _seconds(engine: Any, sequences: int, context: int, tokens: int) -> float:
    from vllm import SamplingParams

    rng = Random(context)
    prompts = [{"prompt_token_ids": [rng.randrange(5, 200) for _ in range(context)]} for _ in range(sequences)]
    sampling = SamplingParams(max_tokens=tokens, min_tokens=tokens, ignore_eos=True, logprobs=0, detokenize=False)
    start = time.perf_counter()
    engine.generate(prompts, sampling, use_tqdm=False)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
