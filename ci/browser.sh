#!/usr/bin/env bash
# Installs the browser that opens pages in the tests, Debian's Chromium, where it is missing and we
# are root. Running it again changes nothing.
set -euo pipefail

fail() {
    printf 'browser: %s\n' "$*" >&2
    exit 1
}

if command -v chromium >/dev/null; then exit 0; fi
if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    fail "chromium is missing, which opens pages in the tests; as root: apt-get install chromium"
fi

echo "browser: installing Debian's chromium"
export DEBIAN_FRONTEND=noninteractive
install() {
    # Without a font a page has no letters.
    apt-get update && apt-get install --yes --no-install-recommends chromium fonts-liberation
}
output=$(install 2>&1 </dev/null) || {
    tail -n 5 <<<"$output" >&2
    fail "chromium could not be installed; see above, then: apt-get install chromium"
}
