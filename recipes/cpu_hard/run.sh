#!/usr/bin/env bash
# Trains on the hard world, on a machine without a GPU, after `verl-kernel data quickstart --world hard`.
# The quickstart's script, with this recipe in its place:
#   recipes/cpu_hard/run.sh kernelgym.feedback=none trainer.total_training_steps=5
set -euo pipefail

RECIPE=cpu_hard exec "$(dirname "$0")/../cpu_quickstart/run.sh" "$@"
