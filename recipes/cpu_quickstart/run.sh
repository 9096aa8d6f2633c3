#!/usr/bin/env bash
# Trains the quickstart model with KernelGYM on a machine without a GPU. Extra arguments are Hydra overrides:
#   recipes/cpu_quickstart/run.sh algorithm.adv_estimator=grpo trainer.total_training_steps=5
set -euo pipefail

run_dir=${RUN_DIR:-outputs/cpu_quickstart}

export VERL_PLATFORM=cpu
export HF_HUB_OFFLINE=1

verl-kernel watch "$run_dir" -- python -m verl.trainer.main_ppo \
    --config-name=cpu_quickstart \
    hydra.run.dir="$run_dir" \
    trainer.rollout_data_dir="$run_dir/rollouts" \
    trainer.v1.sampler.sampler_kwargs.best_kernels="$run_dir/kernels.jsonl" \
    "$@"
verl-kernel report "$run_dir"
