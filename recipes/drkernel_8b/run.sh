#!/usr/bin/env bash
# Reinforcement learning. Extra arguments are Hydra overrides:
#   recipes/drkernel_8b/run.sh trainer.nnodes=2 mismatch=mrs_tis
set -euo pipefail

run_dir=${RUN_DIR:-outputs/drkernel_8b}

verl-kernel watch "$run_dir" -- python -m verl.trainer.main_ppo \
    --config-name=drkernel_8b \
    trainer.default_local_dir="$run_dir/checkpoints" \
    "$@"
verl-kernel report "$run_dir"
