#!/usr/bin/env bash
# Installs the browser that opens pages in the tests, Debian's Chromium, where it is missing and we
# are root. Running it again changes nothing.
set -euo pipefail
# shellcheck source=ci/debian.sh
. "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

if command -v chromium >/dev/null; then exit 0; fi
# Without a font a page has no letters.
install_packages browser "which opens pages in the tests" chromium fonts-liberation
