#!/usr/bin/env bash
# Sees to a program that some tests run: program.sh FOLDER PROGRAM PACKAGE
# Where it is not on the PATH, Debian's package is unpacked into FOLDER, with the libraries that
# it lacks, and FOLDER/PROGRAM then runs it. Not installed unless that fails: an installed server
# would start. Where neither works those tests are skipped. Never fails.
set -uo pipefail

folder=$1 program=$2 package=$3

say() { printf 'setup: %s\n' "$*" >&2; }

installed() { PATH=$PATH:/usr/sbin command -v "$program" >/dev/null; }

unpacked() { [ -x "$folder/$program" ] && ! lacks_libraries; }

binary() { find "$folder/usr" -path "*bin/$program" -type f 2>/dev/null | head -1; }

libraries() { find "$folder/usr" "$folder/lib" -name '*.so.*' -printf '%h\n' 2>/dev/null | sort -u | paste -sd: -; }

lacks_libraries() { LD_LIBRARY_PATH=$(libraries) ldd "$(binary)" 2>/dev/null | grep -q 'not found'; }

fetch() { # into the folder that we are in; needs no rights, only the package lists
    apt-get -qq download "$@" >/dev/null 2>&1 && return
    [ "$(id -u)" = 0 ] && apt-get -qq update >/dev/null 2>&1 && apt-get -qq download "$@" >/dev/null 2>&1
}

needs() { # the libraries that a package file depends on
    dpkg-deb -f "$1" Depends | tr ',|' '\n\n' | grep -o '^ *lib[a-z0-9.+-]*' | grep -v '^ *libc6$'
}

unpack() {
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    say "fetching $program into $folder"
    local packages depth name
    rm -rf "$folder"
    packages=$(mktemp -d) && mkdir -p "$folder" || return 1
    folder=$(cd "$folder" && pwd)
    (cd "$packages" && fetch "$package") && dpkg-deb -x "$packages"/*.deb "$folder" 2>/dev/null
    for depth in 1 2 3; do # libraries of libraries
        lacks_libraries || break
        mkdir -p "$packages/$depth"
        for name in $(find "$packages" -name '*.deb' -print | while read -r file; do needs "$file"; done | sort -u); do
            [ -n "$(find "$packages" -name "${name}_*.deb")" ] || (cd "$packages/$depth" && fetch "$name")
        done
        for name in "$packages/$depth"/*.deb; do dpkg-deb -x "$name" "$folder" 2>/dev/null; done
    done
    rm -rf "$packages"
    [ -n "$(binary)" ] || { rm -rf "$folder"; return 1; }
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "'$(libraries)'" "'$(binary)'" >"$folder/$program"
    chmod +x "$folder/$program"
    unpacked || { rm -rf "$folder"; return 1; }
}

install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    say "installing $package"
    { apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$package"; } \
        >/dev/null 2>&1
    installed
}

installed || unpacked || unpack || install ||
    say "no $program here: its tests are skipped (Debian: apt-get install $package)"
exit 0
