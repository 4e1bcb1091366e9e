#!/usr/bin/env bash
# Installs Apache Otava in an environment of its own, .asv/otava, for `make changes`: it pins numpy, and
# brings clients of databases along. Does nothing where the versions of ci/otava.txt are there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

OTAVA=.asv/otava
PINS=ci/otava.txt
# What is installed: a copy of the pins.
READY=$OTAVA/installed.txt

fail() {
    printf 'otava: %s\n' "$*" >&2
    exit 1
}

[[ -x .uv/bin/uv ]] || fail "there is no .uv yet; run: make env"
mkdir -p .asv
# Two tests may want it at the same time.
exec {lock}>.asv/otava.lock
flock "$lock"
if cmp -s "$PINS" "$READY"; then exit 0; fi

# shellcheck source=ci/pip_index.sh
. ci/pip_index.sh
follow_pip_index
unset VIRTUAL_ENV
# No interpreter but the machine's own: uv would fetch one from elsewhere.
export UV_PYTHON_DOWNLOADS=never
rm -rf "$OTAVA"
.uv/bin/uv venv --quiet --python .uv/bin/python "$OTAVA" || fail "$OTAVA cannot be made"
# The pins are all there is, so nothing is resolved. Not every Python may write bytecode later on.
.uv/bin/uv pip install --quiet --python "$OTAVA/bin/python" --no-deps --compile-bytecode -r "$PINS" ||
    fail "Apache Otava cannot be installed; without it there are no change points"
cp "$PINS" "$READY"
printf 'otava: Apache Otava is in %s\n' "$OTAVA" >&2
