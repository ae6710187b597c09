#!/usr/bin/env bash
# Writes requirements/*.lock: the newest versions that pyproject.toml allows, exactly, with the
# hashes of their files. One lock serves every Python from 3.11 on: lock.sh VENV
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$1/bin/python" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip -q --disable-pip-version-check install uv

resolve() { # resolve NAME OPTION... : which groups and extras of pyproject.toml the lock has
    local name=$1
    shift
    "$scratch/venv/bin/uv" pip compile --quiet pyproject.toml "$@" --upgrade --universal \
        --python-version 3.11 --generate-hashes --no-annotate --no-header >"$scratch/$name.lock"
    { echo "# Exact versions and hashes for: $*. Written by: make lock"
      cat "$scratch/$name.lock"; } >"requirements/$name.lock"
}

resolve ci --group build --group test --group check
# What the tests are installed over has the same versions.
resolve serve --group build --extra server --extra redis --constraint requirements/ci.lock
resolve bench --group build --group bench  # coredis wants an older packaging than the tests
