#!/usr/bin/env bash
# Writes requirements/*.lock: the newest versions that pyproject.toml allows, exactly.
set -euo pipefail
python=$1/bin/python

resolve() { # resolve NAME GROUP... : what the groups of pyproject.toml need, and theirs
    local name=$1 scratch
    shift
    scratch=$(mktemp -d)
    "$python" -m venv "$scratch/venv"
    "$scratch/venv/bin/python" -m pip -q install -U 'pip>=25.1'
    "$scratch/venv/bin/python" -m pip -q install "${@/#/--group=}"
    { echo "# Exact versions of the dependency groups: $*. Made by: make lock"
      "$scratch/venv/bin/python" -m pip freeze --all --exclude pip; } >"requirements/$name.lock"
    rm -rf "$scratch"
}

resolve ci build test check
resolve bench build bench
