#!/usr/bin/env bash
# Sees to nginx, which some tests put before the service: nginx.sh FOLDER
# Where it is not on the PATH, Debian's package is unpacked into FOLDER, whose nginx
# then runs it. Not installed unless that fails: an installed one would start and
# take port 80. Where neither works those tests are skipped. Never fails.
set -uo pipefail

folder=$1

say() { printf 'setup: %s\n' "$*" >&2; }

installed() { PATH=$PATH:/usr/sbin command -v nginx >/dev/null; }

unpacked() { [ -x "$folder/nginx" ] && "$folder/nginx" -v >/dev/null 2>&1; }

fetch() { # into the folder that we are in; needs no rights, only the package lists
    apt-get -qq download "$@" >/dev/null 2>&1 && return
    [ "$(id -u)" = 0 ] && apt-get -qq update >/dev/null 2>&1 && apt-get -qq download "$@" >/dev/null 2>&1
}

unpack() {
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    say "fetching nginx into $folder"
    local packages package libraries
    rm -rf "$folder"
    packages=$(mktemp -d) && mkdir -p "$folder" || return 1
    folder=$(cd "$folder" && pwd)
    for package in nginx nginx-light; do # the first is a name without a program in Debian 11
        (cd "$packages" && fetch "$package") && dpkg-deb -x "$packages/$package"_*.deb "$folder" 2>/dev/null
        [ -x "$folder/usr/sbin/nginx" ] && break
    done
    if ldd "$folder/usr/sbin/nginx" 2>/dev/null | grep -q 'not found'; then
        # shellcheck disable=SC2046  # several names
        (cd "$packages" && fetch $(dpkg-deb -f "$package"_*.deb Depends | tr ',|' '\n\n' | grep -o '^ *lib[a-z0-9.+-]*' | grep -v libc6))
        for package in "$packages"/lib*.deb; do dpkg-deb -x "$package" "$folder" 2>/dev/null; done
    fi
    rm -rf "$packages"
    libraries=$(find "$folder" -name '*.so.*' -printf '%h\n' 2>/dev/null | sort -u | paste -sd: -)
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "'$libraries'" "'$folder/usr/sbin/nginx'" >"$folder/nginx"
    chmod +x "$folder/nginx"
    unpacked || { rm -rf "$folder"; return 1; }
}

install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    say "installing nginx-light"
    { apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends nginx-light; } \
        >/dev/null 2>&1
    installed
}

installed || unpacked || unpack || install ||
    say "no nginx here: its tests are skipped (Debian: apt-get install nginx-light)"
exit 0
