#!/usr/bin/env bash
# Installs what the tests under Slurm need, Debian's Slurm and the tools that make hosts of
# namespaces, where it is missing and we are root. Running it again changes nothing.
set -euo pipefail

fail() {
    printf 'slurm: %s\n' "$*" >&2
    exit 1
}

# Debian's package of each program.
declare -A package=(
    [slurmctld]=slurm-wlm [slurmd]=slurm-wlm [srun]=slurm-wlm [munged]=munge
    [ip]=iproute2 [unshare]=util-linux [nsenter]=util-linux [taskset]=util-linux
)
declare -A missing=()
# A user's path may lack the daemons.
PATH=$PATH:/usr/sbin:/sbin
for program in "${!package[@]}"; do
    command -v "$program" >/dev/null || missing[${package[$program]}]=$program
done
if ((${#missing[@]} == 0)); then exit 0; fi
if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    fail "${missing[*]} missing, which the tests under Slurm need; as root: apt-get install ${!missing[*]}"
fi

echo "slurm: installing Debian's ${!missing[*]}"
export DEBIAN_FRONTEND=noninteractive
install() {
    apt-get update && apt-get install --yes --no-install-recommends "$@"
}
output=$(install "${!missing[@]}" 2>&1 </dev/null) || {
    tail -n 5 <<<"$output" >&2
    fail "they could not be installed; see above, then: apt-get install ${!missing[*]}"
}
