#!/usr/bin/env bash
# Trains SmolLM2-135M-Instruct with KernelGYM on a machine without a GPU, after run_sft.sh. Extra arguments are Hydra
# overrides; RESUME=1 goes on from the last checkpoint; SMOLLM2_DIR names another folder than outputs/smollm2.
set -euo pipefail

folder=${SMOLLM2_DIR:-outputs/smollm2}
run_dir=${RUN_DIR:-outputs/cpu_smollm2}

export VERL_PLATFORM=cpu
export HF_HUB_OFFLINE=1
# Rollout and training take turns, and both compute for long: each may have all cores, and waits without spinning.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}
export OMP_WAIT_POLICY=PASSIVE

resume=() fresh=true
[[ ${RESUME:-0} == 0 ]] || resume=(--resume) fresh=false

verl-kernel watch "${resume[@]}" "$run_dir" -- python -m verl.trainer.main_ppo \
    --config-name=cpu_smollm2 \
    hydra.run.dir="$run_dir" \
    smollm2_dir="$folder" \
    trainer.default_local_dir="$run_dir/checkpoints" \
    trainer.resume_mode="$($fresh && echo disable || echo auto)" \
    trainer.val_before_train="$fresh" \
    trainer.validation_data_dir="$run_dir/validation" \
    trainer.rollout_data_dir="$run_dir/rollouts" \
    trainer.v1.sampler.sampler_kwargs.best_kernels="$run_dir/kernels.jsonl" \
    "$@"
verl-kernel report "$run_dir"
