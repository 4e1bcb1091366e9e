# shellcheck shell=bash
# What scripts share that install packages by .uv/bin/uv.

# Where this machine's pip has an index of its own, uv takes it too, unless it has been told another.
follow_pip_index() {
    local index
    index=${PIP_INDEX_URL:-$(.uv/bin/python -m pip config get global.index-url 2>/dev/null || true)}
    if [[ -n $index ]]; then export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-${UV_INDEX_URL:-$index}}; fi
}
