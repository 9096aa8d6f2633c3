#!/usr/bin/env bash
# Trains a policy that calls tools, on a machine without a GPU, after `verl-kernel data quickstart --world tools`.
# The quickstart's script, with this recipe in its place:
#   recipes/cpu_tools/run.sh kernelgym.reward.scale=1.0 trainer.total_training_steps=5
set -euo pipefail

RECIPE=cpu_tools exec "$(dirname "$0")/../cpu_quickstart/run.sh" "$@"
