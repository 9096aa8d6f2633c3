#!/usr/bin/env bash
# Cold start: trains the pretrained model on the conversations of `python -m recipes.cpu_smollm2`. Extra arguments are Hydra overrides.
# The result is linked as outputs/smollm2/model; SMOLLM2_DIR names another folder than outputs/smollm2.
set -euo pipefail

folder=${SMOLLM2_DIR:-outputs/smollm2}
out=$folder/sft

export VERL_PLATFORM=cpu
export HF_HUB_OFFLINE=1
# One process computes: it may have all cores, and waits without spinning.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}
export OMP_WAIT_POLICY=PASSIVE

[[ -f $folder/manifest.json ]] || { echo "run_sft.sh: $folder holds no model: python -m recipes.cpu_smollm2 --out $folder" >&2; exit 1; }
python -m torch.distributed.run --standalone --nnodes=1 --nproc_per_node=1 \
    -m verl.trainer.sft_trainer \
    --config-name=cpu_smollm2_sft \
    smollm2_dir="$folder" \
    "$@"
step=$(cat "$out/latest_checkpointed_iteration.txt")
# verl writes bfloat16 into it, beside weights in float32.
cp "$folder/base/config.json" "$out/global_step_$step/huggingface/"
ln -sfn "sft/global_step_$step/huggingface" "$folder/model"
