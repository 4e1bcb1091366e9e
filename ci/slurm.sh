#!/usr/bin/env bash
# Installs what the tests on several hosts need, Debian's Slurm and the tools that make hosts of
# namespaces, where it is missing and we are root. Running it again changes nothing.
set -euo pipefail
# shellcheck source=ci/debian.sh
. "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

# A user's path may lack the daemons.
PATH=$PATH:/usr/sbin:/sbin
missing=()
need() { # PACKAGE PROGRAM...
    local package=$1 program
    shift
    for program; do
        if ! command -v "$program" >/dev/null; then
            missing+=("$package")
            return
        fi
    done
}
need slurm-wlm slurmctld slurmd srun
need munge munged
need iproute2 ip
need util-linux unshare nsenter taskset
if ((${#missing[@]})); then
    install_packages slurm "which the tests on several hosts need" "${missing[*]}"
fi
