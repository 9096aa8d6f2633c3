#!/usr/bin/env bash
# `make release`: wheel and sdist in dist/, checked as a user gets them: twine, pip in an empty environment without what trains
# and a verdict there; `make check-install` then proves training. Publishes nothing, and says what the owner does for that.
#   requirements/release.sh PYTHON [TORCH_INDEX]
set -euo pipefail
cd "$(dirname "$0")/.."

python=$("$1" -c 'import sys; print(sys.executable)')
version=$("$python" -c 'import re; print(re.search(r"__version__ = \"(.*)\"", open("verl_kernel/__init__.py").read())[1])')
folder=$(mktemp -d "${CHECK_FOLDER:-${TMPDIR:-/tmp}}/release-XXXXXX")
trap 'rm -rf "$folder"' EXIT
grep -q "^## \[$version\]" CHANGELOG.md || { echo "make release: CHANGELOG.md has no section [$version]" >&2; exit 1; }
grep -q "^version: $version$" CITATION.cff || { echo "make release: CITATION.cff has another version than $version" >&2; exit 1; }
if [[ -n "$(git status --porcelain)" ]]; then echo "make release: commit or remove what git status lists, then run it again" >&2; exit 1; fi

step() { local what=$1 start=$SECONDS; shift; "$@" || exit; printf '==> %s: %ds\n' "$what" $((SECONDS - start)); }

rm -rf dist
step "wheel and sdist" "$python" -m hatchling build --target sdist --target wheel
mkdir "$folder/unpacked"
tar -xzf "dist/verl_kernel-$version.tar.gz" -C "$folder/unpacked" --strip-components=1
(cd "$folder/unpacked" && "$python" -m hatchling build --target wheel --directory "$folder/again" >/dev/null 2>&1)
cmp "dist/verl_kernel-$version-py3-none-any.whl" "$folder"/again/*.whl
echo "==> the sdist builds the same wheel"

"$python" -m venv "$folder/tools"
step "packages of requirements/release.txt" "$folder/tools/bin/pip" install -qq --no-deps -r requirements/release.txt
step "twine" "$folder/tools/bin/twine" check --strict dist/*

requirements/check_wheel.sh "dist/verl_kernel-$version-py3-none-any.whl" "${2:-}" "$python"

cat <<TEXT

verl-kernel $version is built and checked, nothing is published. What only its owner can do:
  1. make check-install             training from this checkout and from the wheel, in empty folders (10 GB, ten minutes)
  2. git tag v$version && git push --tags
                                    .github/workflows/release.yml then builds dist/ again and keeps it with the run
  3. register the project at a package index, name .github/workflows/release.yml as its trusted publisher and set the
     repository's variable PUBLISH to true; or by hand: twine upload dist/*
  4. with a public address: [project.urls] in pyproject.toml, site_url and repo_url in mkdocs.yml, repository-code in CITATION.cff
TEXT
