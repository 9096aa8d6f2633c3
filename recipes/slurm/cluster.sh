#!/usr/bin/env bash
# Trainer nodes and judge nodes as one Ray cluster: a Slurm job of two components (docs/cluster.md). Needs a Slurm
# cluster with GPUs; tests only check what it would start. From the checkout, with Hydra overrides for the recipe:
#   sbatch recipes/slurm/cluster.sh recipes/drkernel_8b/run.sh trainer.nnodes=1
# Sizes of the components are the two blocks below; JUDGES_PER_GPU=2 lets two judges share a GPU.
#SBATCH --job-name=verl-kernel
#SBATCH --output=slurm-%j.log
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH hetjob
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
set -euo pipefail

run=${1:?name the run.sh of a recipe}
shift
port=${RAY_PORT:-6379}
gpus=${GPUS_PER_JUDGE_NODE:-8}
judges_per_gpu=${JUDGES_PER_GPU:-1}

mapfile -t trainers < <(scontrol show hostnames "$SLURM_JOB_NODELIST_HET_GROUP_0")
mapfile -t judges < <(scontrol show hostnames "$SLURM_JOB_NODELIST_HET_GROUP_1")
address=${trainers[0]}:$port
per_node=$((gpus * judges_per_gpu))

on_node() { # component, node, command
    srun --het-group="$1" --nodelist="$2" --nodes=1 --ntasks=1 --overlap "${@:3}"
}

on_node 0 "${trainers[0]}" ray start --head --port="$port" --block &
until on_node 0 "${trainers[0]}" ray status --address="$address" > /dev/null; do
    sleep 2
done
for node in "${trainers[@]:1}"; do
    on_node 0 "$node" ray start --address="$address" --block &
done
for node in "${judges[@]}"; do
    # One CPU a judge: too few for verl's group of GPUs, so that it stays on the trainer nodes.
    on_node 1 "$node" ray start --address="$address" --num-cpus="$per_node" --num-gpus="$gpus" \
        --resources="{\"judge\": $per_node}" --block &
done

on_node 0 "${trainers[0]}" python recipes/slurm/await_nodes.py "$address" "$((${#trainers[@]} + ${#judges[@]}))"

export RAY_ADDRESS=$address
on_node 0 "${trainers[0]}" "$run" \
    kernelgym.judge_resources="{judge: 1}" \
    kernelgym.num_judges="$((per_node * ${#judges[@]}))" \
    kernelgym.gpus_per_judge="$(awk "BEGIN {print 1 / $judges_per_gpu}")" \
    "$@"
