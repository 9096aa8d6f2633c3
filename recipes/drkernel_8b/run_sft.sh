#!/usr/bin/env bash
# Cold start: trains the base model on the published talks. Extra arguments are Hydra overrides.
# The result is linked as outputs/drkernel_8b_sft/model.
set -euo pipefail

out=outputs/drkernel_8b_sft

python -m torch.distributed.run --standalone --nnodes=1 --nproc_per_node="${GPUS:-8}" \
    -m verl.trainer.sft_trainer \
    --config-name=drkernel_8b_sft \
    trainer.default_local_dir="$out" \
    trainer.n_gpus_per_node="${GPUS:-8}" \
    "$@"
ln -sfn "global_step_$(cat "$out/latest_checkpointed_iteration.txt")/huggingface" "$out/model"
