#!/usr/bin/env bash
# Checks workflows, shell scripts, images, issue forms, the fragments of the change log and the scripts of
# pages; only the first time with a network, for eslint. Run by `make lint`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
quietly() {
    local output
    output=$("$@" 2>&1) || {
        printf '%s\n' "$output" >&2
        exit 1
    }
}
# Checks the scripts of the pages. Installs eslint in .cache once, from the registry that npm is set to.
lint_scripts() {
    local version=9.39.1 output
    local directory=$PWD/.cache/eslint-$version
    local eslint=$directory/node_modules/.bin/eslint
    if ! command -v npm >/dev/null; then
        echo "eslint: npm is missing, so no script of the pages is checked; install Node.js 20 or later" >&2
        return
    fi
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
}
quietly check-jsonschema --builtin-schema vendor.github-workflows ci/github/nightly.yml
quietly check-jsonschema --builtin-schema custom.github-workflows-require-timeout ci/github/nightly.yml
quietly check-jsonschema --builtin-schema vendor.gitlab-ci ci/gitlab/nightly.yml
quietly check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
shopt -s extglob
quietly check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/!(config).yml
quietly towncrier build --draft --version next
quietly zizmor --offline --quiet ci/github/nightly.yml
quietly shellcheck --external-sources ci/*.sh ci/*/*.sh ci/slurm/nightly.sbatch
quietly hadolint ci/containers/*.Dockerfile
lint_scripts
echo "All checks passed in ci/, .github/ and changes/"
