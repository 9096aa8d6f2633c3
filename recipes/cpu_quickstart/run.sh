#!/usr/bin/env bash
# Trains the quickstart model with KernelGYM on a machine without a GPU. Extra arguments are Hydra overrides:
#   recipes/cpu_quickstart/run.sh algorithm.adv_estimator=grpo trainer.total_training_steps=5
# RESUME=1 goes on from the last checkpoint of an interrupted run, with the data that come after it.
set -euo pipefail

recipe=${RECIPE:-cpu_quickstart} # of cpu_hard and cpu_tools too
run_dir=${RUN_DIR:-outputs/$recipe}

export VERL_PLATFORM=cpu
export HF_HUB_OFFLINE=1

resume=()
[[ ${RESUME:-0} == 0 ]] || resume=(--resume)

verl-kernel watch "${resume[@]}" "$run_dir" -- python -m verl.trainer.main_ppo \
    --config-name="$recipe" \
    hydra.run.dir="$run_dir" \
    trainer.default_local_dir="$run_dir/checkpoints" \
    trainer.resume_mode="$([[ ${RESUME:-0} == 0 ]] && echo disable || echo auto)" \
    trainer.rollout_data_dir="$run_dir/rollouts" \
    trainer.v1.sampler.sampler_kwargs.best_kernels="$run_dir/kernels.jsonl" \
    "$@"
verl-kernel report "$run_dir"
