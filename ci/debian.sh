# shellcheck shell=bash
# To be sourced: installs Debian's packages that tests need.

# Ends the script with a line, unless the packages are installed. WHAT_FOR: a relative clause. BESIDE: packages
# that a user who installs by hand may leave out.
install_packages() { # NAME WHAT_FOR "PACKAGES" ["BESIDE"]
    local name=$1 purpose=$2 packages=$3 beside=${4:-} output verb=is
    if [[ $packages == *" "* ]]; then verb=are; fi
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
        printf '%s: %s %s missing, %s; as root: apt-get install %s\n' "$name" "$packages" "$verb" "$purpose" "$packages" >&2
        exit 1
    fi
    echo "$name: installing Debian's $packages"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 # several words
    output=$({ apt-get update && apt-get install --yes --no-install-recommends $packages $beside; } 2>&1 </dev/null) || {
        tail -n 5 <<<"$output" >&2
        printf '%s: %s could not be installed; see above, then: apt-get install %s\n' "$name" "$packages" "$packages" >&2
        exit 1
    }
}
