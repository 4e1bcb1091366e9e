#!/usr/bin/env bash
# Checks the files in ci/: workflows, shell scripts and images, without a network. Run by `make lint`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
quietly() {
    local output
    output=$("$@" 2>&1) || {
        printf '%s\n' "$output" >&2
        exit 1
    }
}
quietly check-jsonschema --builtin-schema vendor.github-workflows ci/github/nightly.yml
quietly check-jsonschema --builtin-schema custom.github-workflows-require-timeout ci/github/nightly.yml
quietly check-jsonschema --builtin-schema vendor.gitlab-ci ci/gitlab/nightly.yml
quietly zizmor --offline --quiet ci/github/nightly.yml
quietly shellcheck --external-sources ci/*.sh ci/*/*.sh ci/slurm/nightly.sbatch
quietly hadolint ci/containers/*.Dockerfile
echo "All checks passed in ci/"
