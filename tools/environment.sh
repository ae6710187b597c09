#!/usr/bin/env bash
# Makes the virtual environment that the Makefile works in: environment.sh FOLDER
# Needs a Python of at least 3.11 with venv. As root on Debian it fetches what is
# missing; otherwise it says what to install. Without a C compiler or Python's
# headers it goes on: Penstock then runs uncompiled.
set -euo pipefail

folder=$1
python=${PYTHON:-python3}

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

fetch() { # Debian packages, where we may
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    say "installing $*"
    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y "$@"; } >/dev/null 2>&1
}

command -v "$python" >/dev/null || fetch python3 || die "no $python found: install Python 3.11 or newer"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "$("$python" --version) is too old: Penstock needs 3.11 or newer (make PYTHON=... to choose one)"

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    fetch python3-venv || die "this Python has no venv: install it (Debian: apt-get install python3-venv)"
fi
[ -x "$folder/bin/python" ] || "$python" -m venv "$folder" ||
    die "could not make $folder (Debian: apt-get install python3-venv)"

headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
if ! command -v "${CC:-cc}" >/dev/null && ! command -v gcc >/dev/null; then
    say "no C compiler found: Penstock will run uncompiled (slower, same decisions)"
elif [ ! -e "$headers" ] && ! fetch python3-dev; then
    say "no $headers: Penstock will run uncompiled (Debian: apt-get install python3-dev)"
fi
