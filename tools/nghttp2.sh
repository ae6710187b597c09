#!/usr/bin/env bash
# Sees to libnghttp2, which gRPC is served with: nghttp2.sh FOLDER
# Where it is not installed: as root on Debian it is installed, as a user its packages
# are unpacked into FOLDER. Where neither works Penstock goes on without: grpcio then
# serves the same methods, slower. Never fails.
set -uo pipefail

folder=$1

say() { printf 'setup: %s\n' "$*" >&2; }

installed() {
    { command -v pkg-config >/dev/null && pkg-config --exists libnghttp2; } ||
        echo '#include <nghttp2/nghttp2.h>' | "${CC:-cc}" -E -xc - >/dev/null 2>&1
}

install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    say "installing libnghttp2-dev"
    { apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq install -y libnghttp2-dev; } >/dev/null 2>&1
}

unpack() { # needs no rights, only the package lists
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    say "fetching libnghttp2 into $folder"
    local packages package
    packages=$(mktemp -d) || return 1
    (cd "$packages" && apt-get -qq download libnghttp2-dev libnghttp2-14) >/dev/null 2>&1
    rm -rf "$folder"
    for package in "$packages"/*.deb; do
        { mkdir -p "$folder" && dpkg-deb -x "$package" "$folder"; } 2>/dev/null || break
    done
    rm -rf "$packages"
    # A header without its library would be found and could not be linked.
    [ -e "$folder/usr/include/nghttp2/nghttp2.h" ] &&
        [ -e "$(find "$folder" -name libnghttp2.so -print -quit)" ] || { rm -rf "$folder"; return 1; }
}

installed && exit 0
[ -e "$folder/usr/include/nghttp2/nghttp2.h" ] && exit 0
install && installed && exit 0
unpack && exit 0
say "no libnghttp2 here: gRPC will be served by grpcio (Debian: apt-get install libnghttp2-dev)"
exit 0
