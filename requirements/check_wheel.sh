#!/usr/bin/env bash
# `make check-wheel PYTHONS="python3.13 python3.14"`: pip installs the wheel into an empty environment of each Python, without
# what trains, and the examples get their verdicts there. `make release` proves its own wheel so.
#   requirements/check_wheel.sh WHEEL TORCH_INDEX PYTHON...
set -euo pipefail
cd "$(dirname "$0")/.."

wheel=$1 index=$2
folder=$(mktemp -d "${CHECK_FOLDER:-${TMPDIR:-/tmp}}/check-wheel-XXXXXX")
trap 'rm -rf "$folder"' EXIT
torch=$(grep -oE '^torch==[^ ]+' requirements/cpu.txt)
cp -r examples "$folder/examples"
pip() { HOME=$folder/home "$folder/empty/bin/pip" install -qq "$@"; }

for python in "${@:3}"; do
    start=$SECONDS
    "$python" -m venv --clear "$folder/empty"
    # A CPU build spares 3 GB; the wheel works with either.
    pip "$torch+cpu" 2>/dev/null || { [[ -n $index ]] && PIP_INDEX_URL=$index timeout 600 "$folder/empty/bin/pip" install -qq --no-deps "$torch+cpu" 2>/dev/null; } || true
    pip "$wheel"
    verdicts=$(cd "$folder" && env -u PYTHONPATH HOME="$folder" empty/bin/verl-kernel eval examples/reference.py examples/fused.py examples/wrong.py --device cpu --json)
    [[ $(grep -c '"status":"ok"' <<<"$verdicts") == 1 && $(grep -c '"status":"incorrect"' <<<"$verdicts") == 1 ]] ||
        { printf '%s: the wheel judges the examples otherwise with %s:\n%s\n' "$0" "$python" "$verdicts" >&2; exit 1; }
    printf '==> the wheel in an empty environment of %s, %s: fused.py ok, wrong.py incorrect: %ds\n' "$("$folder/empty/bin/python" --version)" \
        "$("$folder/empty/bin/python" -c 'import torch, triton; print("torch", torch.__version__, "triton", triton.__version__)')" $((SECONDS - start))
done
