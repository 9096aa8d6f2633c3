#!/usr/bin/env bash
# Runs the study, or what is missing of it. Extra arguments go to `python -m recipes.cpu_study` (see --help).
set -euo pipefail
cd "$(dirname "$0")/../.."

export VERL_PLATFORM=cpu
export HF_HUB_OFFLINE=1

verl-kernel data quickstart --out outputs/quickstart
verl-kernel data temperatures outputs/quickstart/val.parquet --out outputs/quickstart/val_temperatures.parquet
python -m recipes.cpu_study recipes/cpu_study/study.yaml --out outputs/cpu_study "$@"
