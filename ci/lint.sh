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
quietly check-jsonschema --builtin-schema vendor.github-workflows ci/github/nightly.yml
quietly check-jsonschema --builtin-schema custom.github-workflows-require-timeout ci/github/nightly.yml
quietly check-jsonschema --builtin-schema vendor.gitlab-ci ci/gitlab/nightly.yml
quietly check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
for form in .github/ISSUE_TEMPLATE/*.yml; do
    if [[ $form != */config.yml ]]; then
        quietly check-jsonschema --builtin-schema vendor.github-issue-forms "$form"
    fi
done
quietly towncrier build --draft --version next
quietly zizmor --offline --quiet ci/github/nightly.yml
quietly shellcheck --external-sources ci/*.sh ci/*/*.sh ci/slurm/nightly.sbatch
quietly hadolint ci/containers/*.Dockerfile
bash ci/eslint.sh
echo "All checks passed in ci/, .github/ and changes/"
