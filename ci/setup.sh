#!/usr/bin/env bash
# Builds the environment: `make env` runs this when pyproject.toml or one of these scripts is newer
# than the environment. Running it again changes nothing that is as it should be.
#
#   VENV=.venv     the environment's directory
#   TF=2.15.1      another TensorFlow for CPUs: the group tf2.15.1 of pyproject.toml
#   HOROVOD=0.28.0 another Horovod, with TF=: compiled by ci/build_horovod.py
#   GPU=1          TensorFlow with CUDA and Horovod with NCCL, see ci/setup_gpu.sh
#   MPI=system     with GPU=1: the MPI on PATH instead of the packaged Open MPI
#   PYTHON=3.12    another Python than 3.11, which has to be on PATH or among pyenv's
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

UV_VERSION=0.13.9
TF=${TF:-}
HOROVOD=${HOROVOD:-}
PYTHON=${PYTHON:-3.11}
VENV=${VENV:-.venv${TF:+-tf$TF}${HOROVOD:+-hvd$HOROVOD}$([[ $PYTHON == 3.11 ]] || echo "-py$PYTHON")}
GPU=${GPU:-}
MPI=${MPI:-}
LOG=.uv/setup.log
# Reported, and what the Makefile compares dates with.
READY=$VENV/.ready

say() { printf 'env: %s\n' "$*"; }

fail() {
    printf 'env: %s\n' "$*" >&2
    exit 1
}

elapsed() {
    local seconds=$((SECONDS - ${1:-0}))
    if ((seconds < 60)); then echo "$seconds s"; else echo "$((seconds / 60)) min $((seconds % 60)) s"; fi
}

# --- what the machine has to have -----------------------------------------------------------------

is_wanted() {
    "$1" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])' "$PYTHON" >/dev/null 2>&1
}

find_python() {
    local candidate found=()
    # pyenv's commands find only those of its versions that have been chosen.
    for candidate in "python$PYTHON" python3 python "$(pyenv prefix "$PYTHON" 2>/dev/null)/bin/python"; do
        if is_wanted "$candidate"; then
            # A shim, or a virtual environment, leads to the interpreter behind it.
            "$candidate" -c 'import sys; print(getattr(sys, "_base_executable", sys.executable))'
            return
        fi
        if command -v "$candidate" >/dev/null; then
            found+=("$candidate is $("$candidate" -V 2>&1 | head -n 1)")
        fi
    done
    fail "Python $PYTHON is missing (${found[0]:-no python3 found}):" \
        "apt-get install python$PYTHON python$PYTHON-venv"
}

check_machine() {
    [[ $PWD != *:* ]] || fail "move the checkout: PATH cannot hold $PWD, which has a colon"
    [[ $(uname -sm) == "Linux x86_64" ]] || fail "only Linux x86_64 is supported, this is $(uname -sm)"
    python=$(find_python)
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "Python's venv module is missing: apt-get install python$PYTHON-venv"
    command -v "${CXX:-g++}" >/dev/null || fail "the C++ compiler ${CXX:-g++} is missing: apt-get install g++"
    command -v make >/dev/null || fail "make is missing: apt-get install make"
    if [[ -n $GPU ]]; then check_gpu_machine; fi
    say "Python $("$python" -c 'import platform; print(platform.python_version())')," \
        "$("${CXX:-g++}" --version | head -n 1)"
}

# --- long commands --------------------------------------------------------------------------------

# What the log's latest lines say is going on.
activity() {
    local percent
    if grep -q 'Bytecode compiled\|^Installed ' "$LOG"; then
        echo "compiling bytecode"
    elif percent=$(grep -o '^[A-Z ]*\[ *[0-9]*%\]' "$LOG" | tail -n 1 | tr -dc 0-9) && [[ -n $percent ]]; then
        echo "compiling Horovod, $percent %"
    elif grep -q 'Building horovod\|Preparing metadata' "$LOG"; then
        echo "preparing to compile Horovod"
    else
        echo "downloading packages"
    fi
}

# The log's first errors, and its end: a compiler's message is far above what pip or uv say last.
show_failure() {
    grep -E -A 3 '(^|: |fatal )(error|ERROR):|CMake Error' "$LOG" | head -n 20 || true
    echo "[...]"
    tail -n 15 "$LOG"
}

# Runs a command that says little for minutes: its output goes to the log, and every ten seconds a
# line tells how far it is. On failure the log's end is shown.
run_logged() {
    local what=$1 begun=$SECONDS reporter status=0
    shift
    : >"$LOG"
    (
        nap=
        trap 'kill "$nap" 2>/dev/null; exit' TERM
        while kill -0 $$ 2>/dev/null; do
            # It holds no output open, so nobody waits for it once this script has been killed.
            sleep 10 >/dev/null 2>&1 &
            nap=$!
            wait "$nap"
            say "[$(elapsed "$begun")] $(activity)"
        done
    ) &
    reporter=$!
    trap 'kill "$reporter" 2>/dev/null || true' EXIT
    "$@" >>"$LOG" 2>&1 </dev/null || status=$?
    kill "$reporter" 2>/dev/null || true
    wait "$reporter" 2>/dev/null || true
    trap - EXIT
    if ((status != 0)); then
        show_failure >&2
        fail "$what failed with status $status after $(elapsed "$begun"); all of it is in $LOG"
    fi
}

# --- uv -------------------------------------------------------------------------------------------

# Where this machine's pip has an index of its own, uv takes it too, unless it has been told another.
follow_pip_index() {
    local index
    index=${PIP_INDEX_URL:-$(.uv/bin/python -m pip config get global.index-url 2>/dev/null || true)}
    if [[ -n $index ]]; then export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-${UV_INDEX_URL:-$index}}; fi
}

# In a virtual environment of its own: Debian's Python refuses a plain pip install.
install_uv() {
    [[ $(.uv/bin/uv --version 2>/dev/null) != "uv $UV_VERSION"* ]] || return 0
    mkdir -p .uv
    run_logged "making .uv" "$python" -m venv .uv
    run_logged "installing uv" .uv/bin/python -m pip install --disable-pip-version-check "uv==$UV_VERSION"
    say "uv $UV_VERSION installed in .uv"
}

# One job per core, and no more than the memory allows: a job takes up to 1.5 GB.
build_jobs() {
    local cores kilobytes
    cores=$(nproc)
    kilobytes=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
    local fit=$((kilobytes / 1500000))
    echo $((fit < 1 ? 1 : fit < cores ? fit : cores))
}

sync_packages() {
    local begun=$SECONDS
    say "packages for $VENV; where Horovod has to be compiled this takes two to five minutes"
    unset VIRTUAL_ENV
    # No interpreter but the machine's own: uv would fetch one from elsewhere.
    export UV_PROJECT_ENVIRONMENT=$VENV UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1
    # The build of Horovod takes this before the MAKEFLAGS of pyproject.toml.
    CMAKE_BUILD_PARALLEL_LEVEL=$(build_jobs)
    export CMAKE_BUILD_PARALLEL_LEVEL
    # -v passes on what the compilation prints.
    run_logged "uv sync" .uv/bin/uv sync -v --python "$python" "$@"
    say "$(.uv/bin/uv pip list --python "$VENV/bin/python" --format json 2>/dev/null |
        "$VENV/bin/python" -c 'import json, sys; print(len(json.load(sys.stdin)))') packages in $VENV" \
        "after $(elapsed "$begun")"
}

# Exports what Horovod's compilation takes, wherever uv or pip runs it.
export_settings() {
    local horovod lines line tensorflow=$TF
    horovod=$(sed -n 's/^ *"horovod==\([^"]*\)",$/\1/p' pyproject.toml)
    if [[ -z $TF && -z $GPU ]]; then
        tensorflow=$(sed -n 's/^cpu = .*"tf\([^"]*\)".*/\1/p' pyproject.toml)
    fi
    lines=$("$python" ci/build_horovod.py --horovod "$horovod" --settings-for "$tensorflow")
    while IFS= read -r line; do export "${line?}"; done <<<"$lines"
}

# --- Open MPI -------------------------------------------------------------------------------------

SETTINGS=$VENV/etc/openmpi-mca-params.conf

# Adds a setting, unless the file has one of that name.
add_setting() {
    local name=$1 value=$2 comment=$3
    if grep -q "^$name *=" "$SETTINGS"; then return; fi
    # A new file, since the one there is a hard link into uv's cache.
    cp "$SETTINGS" "$SETTINGS.new"
    printf '\n# %s\n%s = %s\n' "$comment" "$name" "$value" >>"$SETTINGS.new"
    mv "$SETTINGS.new" "$SETTINGS"
}

# The daemon that mpirun starts on every other host, where `activate` was not sourced. Its ranks inherit
# its variables, so they find the programs and libraries of this environment, too.
install_daemon() {
    cat >"$VENV/bin/orted_here" <<'END'
#!/bin/sh
bin=$(dirname "$(readlink -f "$0")")
OPAL_PREFIX=$(dirname "$bin")
PATH=$bin:$PATH
LD_LIBRARY_PATH=$OPAL_PREFIX/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export OPAL_PREFIX PATH LD_LIBRARY_PATH
exec "$bin/orted" "$@"
END
    chmod +x "$VENV/bin/orted_here"
}

# A session outlives the loss of a host if its mpirun was started by outer_mpirun.py. This script takes the
# place of the packaged mpirun, which does the same as orterun beside it.
install_mpirun() {
    rm -f "$VENV/bin/mpirun"
    cat >"$VENV/bin/mpirun" <<'END'
#!/bin/sh
bin=$(dirname "$(readlink -f "$0")")
before=
for word; do
    case $before,$word in
    -m,*) ;; # python -m pytest
    *,pytest | *,*/pytest)
        script=$(dirname "$(dirname "$bin")")/hvdperf/launch/outer_mpirun.py
        exec "$bin/python" -I -S "$script" "$bin/orterun" "$@"
        ;;
    esac
    before=$word
done
exec "$bin/orterun" "$@"
END
    chmod +x "$VENV/bin/mpirun"
}

configure_open_mpi() {
    if [[ ! -e $SETTINGS ]]; then
        say "no packaged Open MPI in $VENV: the system's settings hold"
        return
    fi
    install_mpirun
    add_setting rmaps_base_oversubscribe 1 "More ranks than cores are allowed: the suite marks such runs."
    OPAL_PREFIX=$PWD/$VENV "$VENV/bin/ompi_info" --param rmaps base --level 9 --parsable |
        grep -q 'rmaps_base_oversubscribe:value:true' ||
        fail "Open MPI does not read rmaps_base_oversubscribe from $SETTINGS"
    say "Open MPI may start more ranks than cores ($SETTINGS)"
    if [[ $PWD == *[^A-Za-z0-9_./+:@-]* ]]; then
        say "mpirun starts ranks on this machine only, because a shell changes the path $PWD"
    else
        install_daemon
        add_setting orte_launch_agent "$PWD/$VENV/bin/orted_here" "On other hosts the daemon starts in this environment."
    fi
    # Without a way to other machines Open MPI refuses to start even on its own. An environment that is
    # built where there is ssh may be copied to where there is none.
    add_setting plm_rsh_agent "ssh : rsh : false" "Without ssh, ranks start on this machine only."
    if ! command -v ssh >/dev/null && ! command -v rsh >/dev/null; then
        say "no ssh: mpirun starts ranks on this machine only; for others: apt-get install openssh-client"
    fi
}

# --- the proof ------------------------------------------------------------------------------------

# Prints one line from rank 0, once both ranks have added up a tensor. The GPUs are left alone: two
# ranks may have to share one, which NCCL refuses.
HELLO='
import os
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import horovod, sys
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
total = hvd.allreduce(tf.constant([1.0 + hvd.rank()]), op=hvd.Sum).numpy()[0]
if (hvd.size(), total) != (2, 3.0):
    sys.exit(f"rank {hvd.rank()}: hvd.size() is {hvd.size()}, the sum {total}, instead of 2 and 3")
if not hvd.mpi_built():
    sys.exit("Horovod was built without MPI")
if sys.argv[1] == "1" and not hvd.nccl_built():
    sys.exit("Horovod was built without NCCL")
if hvd.rank() == 0:
    parts = [("MPI", hvd.mpi_built()), ("Gloo", hvd.gloo_built()), ("NCCL", hvd.nccl_built())]
    built = ", ".join(name for name, there in parts if there)
    print(f"Horovod {horovod.__version__} ({built}), TensorFlow {tf.__version__}: 2 ranks agree")
'

check_horovod() {
    local begun=$SECONDS answer
    # shellcheck source=activate
    HVDPERF_VENV=$VENV && . ./activate
    answer=$(timeout 180 mpirun -np 2 python -c "$HELLO" "${GPU:-0}" 2>"$LOG" </dev/null) || {
        tail -n 40 "$LOG" >&2
        fail "Horovod does not run on 2 ranks"
    }
    say "$answer ($(elapsed "$begun"))"
}

# --- another Horovod ------------------------------------------------------------------------------

sync_other_horovod() {
    local begun wheels=.asv/wheels/horovod-$HOROVOD-tf$TF cmake groups=()
    if ! grep -q "^cpu = .*\"tf$TF\"" pyproject.toml; then
        groups=(--no-group cpu --group "tf$TF")
    fi
    sync_packages "${groups[@]}" --no-install-package horovod
    begun=$SECONDS
    say "compiling Horovod $HOROVOD"
    # Beside the environment, so that it is no package of the stack.
    cmake=$(sed -n 's/^ *"\(cmake==[^"]*\)",$/\1/p' pyproject.toml | head -n 1)
    run_logged "installing $cmake" .uv/bin/python -m pip install --disable-pip-version-check "$cmake"
    rm -rf "$wheels"
    CMAKE_BUILD_PARALLEL_LEVEL=$(build_jobs) .uv/bin/python ci/build_horovod.py \
        --horovod "$HOROVOD" --python "$VENV/bin/python" --wheels "$wheels" ||
        fail "Horovod $HOROVOD cannot be built with TensorFlow $TF; its log is in .asv/logs"
    # Not by uv, which would want to know what a build of Horovod takes.
    run_logged "installing Horovod" .uv/bin/python -m pip --python "$VENV/bin/python" install \
        --no-deps "$wheels"/*.whl
    say "Horovod compiled after $(elapsed "$begun")"
}

# shellcheck source=ci/setup_gpu.sh
. ci/setup_gpu.sh

# What activate has to be told where it would take another environment.
named() {
    local chosen=.venv
    if [[ -x .venv-gpu/bin/horovodrun ]]; then chosen=.venv-gpu; fi
    if [[ $VENV != "$chosen" ]]; then printf 'HVDPERF_VENV=%s ' "$VENV"; fi
}

# `hvdperf` and `pytest`, from anywhere: the modules are this checkout's, the interpreter is the one beside
# them.
install_commands() {
    local command
    for command in hvdperf:hvdperf pytest:hvdperf.launch.pytest_command; do
        rm -f "$VENV/bin/${command%%:*}"
        cat >"$VENV/bin/${command%%:*}" <<END
#!/bin/sh
# Without a further process in the usual case, since hundreds of slots may start at once.
bin=\${0%/*}
if [ -L "\$0" ] || [ "\${0#/}" = "\$0" ]; then bin=\$(dirname "\$(readlink -f "\$0")"); fi
root=\${bin%/*}
export PYTHONPATH="\${root%/*}\${PYTHONPATH:+:\$PYTHONPATH}"
exec "\$bin/python" -P -m ${command#*:} "\$@"
END
        chmod +x "$VENV/bin/${command%%:*}"
    done
}

# One at a time: uv would wait for its own lock without a word, and give up.
take_turn() {
    command -v flock >/dev/null || return 0
    mkdir -p .uv
    exec 9>.uv/turn
    if ! flock -n 9; then
        say "another \`make env\` builds in this checkout; this one waits for it"
        flock 9
        say "the other one has ended after $(elapsed)"
    fi
}

main() {
    check_machine
    take_turn
    install_uv
    follow_pip_index
    # Another Horovod is compiled by ci/build_horovod.py, which knows them.
    if [[ -z $HOROVOD ]]; then export_settings; fi
    if [[ -n $GPU ]]; then
        sync_gpu_packages
    elif [[ -n $HOROVOD ]]; then
        sync_other_horovod
    elif [[ -n $TF ]]; then
        sync_packages --no-group cpu --group "tf$TF"
    else
        sync_packages
    fi
    configure_open_mpi
    check_horovod
    install_commands
    touch "$READY"
    say "ready after $(elapsed); to use it: $(named). ./activate"
}

main
