#!/usr/bin/env bash
# Sees to Chromium, in which some tests open reports: chromium.sh
# Where it is not on the PATH, Debian's package is installed, if we may. Else those tests are
# skipped. Never fails.
set -uo pipefail

say() { printf 'setup: %s\n' "$*" >&2; }

there() { command -v chromium >/dev/null || command -v chromium-browser >/dev/null; }

install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    say "installing chromium, which takes a minute"
    { apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium; } \
        >/dev/null 2>&1
    there
}

there || install || say "no Chromium here: its tests are skipped (Debian: apt-get install chromium)"
exit 0
