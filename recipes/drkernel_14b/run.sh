#!/usr/bin/env bash
# Reinforcement learning. Extra arguments are Hydra overrides:
#   recipes/drkernel_14b/run.sh trainer.nnodes=2 mismatch=mrs_tis
set -euo pipefail

run_dir=${RUN_DIR:-outputs/drkernel_14b}

verl-kernel watch "$run_dir" -- python -m verl.trainer.main_ppo \
    --config-name=drkernel_14b \
    trainer.default_local_dir="$run_dir/checkpoints" \
    "$@"
verl-kernel report "$run_dir"
