#!/usr/bin/env bash
# Checks the scripts of the pages. Installs eslint in .cache once, from the registry that npm is set to.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=9.39.1
directory=$PWD/.cache/eslint-$version

if ! command -v npm >/dev/null; then
    echo "eslint: npm is missing, so no script of the pages is checked; install Node.js 20 or later" >&2
    exit 0
fi
eslint=$directory/node_modules/.bin/eslint
if [[ ! -x $eslint ]]; then
    echo "eslint: installing eslint $version in .cache"
    # Into another directory first, so that one that was interrupted is not taken for whole.
    rm -rf "$directory" "$directory.new"
    mkdir -p "$directory.new"
    output=$(npm install --silent --no-audit --no-fund --no-save --prefix "$directory.new" "eslint@$version" 2>&1) || {
        tail -n 3 <<<"$output" >&2
        echo "eslint: eslint $version cannot be installed; see above, and npm config get registry" >&2
        exit 1
    }
    mv "$directory.new" "$directory"
fi
git ls-files -z '*.js' ':!*/vendor/*' |
    ESLINT_DIRECTORY=$directory xargs -0 "$eslint" --config ci/eslint.config.mjs --max-warnings 0
