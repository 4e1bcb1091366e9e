#!/usr/bin/env bash
# Checks on a GPU node what no machine without GPUs can. A person runs it once; its sessions have budgets
# of 14 minutes together.
# It prints a line for each check, with what was expected, and writes a file to attach to an issue.
#
#   make env GPU=1 && bash ci/gpu/selftest.sh
#   bash ci/gpu/selftest.sh --on-cpu      # the same checks of the script itself, with small networks
#
# Exit status: the number of checks that failed.
# shellcheck disable=SC2329 # `check` calls the functions by their names
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
# Of one GPU, what compares two ranks is left out: NCCL 2.21 refuses two ranks on a GPU.
kind=gpu gpus=$(nvidia-smi -L 2>/dev/null | wc -l) models=(resnet_50 vgg_16) profile=gpu
if [[ ${1:-} == --on-cpu ]]; then
    kind=cpu gpus=2 models=(alexnet_s vgg_16_s) profile=smoke
    export CUDA_VISIBLE_DEVICES=
fi
. ./activate || exit 1
here=$(mktemp -d)
log=$here/selftest.txt
results=$here/results
failed=0

# Runs a command, and prints whether its exit status is one of EXPECTED. Its output is kept.
check() { # NAME "EXPECTED" COMMAND...
    local name=$1 expected=$2 status=0 word=ok
    shift 2
    printf '\n== %s: %s\n' "$name" "$*" >>"$log"
    "$@" >>"$log" 2>&1 </dev/null || status=$?
    printf '== exit status %s, expected %s\n' "$status" "$expected" >>"$log"
    if [[ " $expected " != *" $status "* ]]; then
        word=FAILED failed=$((failed + 1))
    fi
    printf '%-7s %-44s expected exit status %s, was %s\n' "$word" "$name" "${expected// / or }" "$status"
}

# The same, of a check that needs two ranks.
check_two() {
    if ((gpus > 1)); then check "$@"; else printf '%-7s %-44s needs two GPUs\n' "not run" "$1"; fi
}

# A session of some cases with few rounds. STATUS 6 means that they could not be decided in time.
session() { # MINUTES FILE OPTIONS...
    local minutes=$1 file=$2
    shift 2
    timeout 900 pytest "perf/$file" --profile "$profile" --results "$results" --budget "$minutes" "$@"
}

# The newest session used these devices and libraries.
evidence() {
    python - "$results" "$kind" <<'PYTHON'
import json
import sys
from pathlib import Path

results, kind = sys.argv[1:]
session = sorted(Path(results, "runs").iterdir())[-1]
document = json.loads((session / "session.json").read_text())
fingerprint = document["fingerprint"]
print(json.dumps(fingerprint, indent=1))
ranks = [
    rank
    for path in session.glob("rounds/*.json")
    for measured in json.loads(path.read_text())["rounds"]
    for launch in measured["launches"]
    for rank in launch["metadata"]
]
print("transports of the ranks:", {rank["transport"] for rank in ranks})
assert ranks, "no rank reported"
if kind == "gpu":
    assert fingerprint["gpus"] > 0, "the session saw no GPU"
    assert "nccl" in fingerprint["horovod_built_with"], "Horovod has no NCCL"
    assert fingerprint["nccl"], "NCCL was not found"
    assert any(rank.get("nccl") for rank in ranks), "no rank used NCCL"
print("unfit:", *document["unfit"], sep="\n  ")
PYTHON
}

# No process of a session has stayed on a GPU.
nothing_left() {
    if [[ $kind == cpu ]]; then return 0; fi
    sleep 5
    local left
    left=$(nvidia-smi --query-compute-apps=pid,process_name --format=csv,noheader)
    echo "$left"
    ! grep -q hvd <<<"$left"
}

# nvidia-smi reports a GPU fault (Xid) only in the kernel's log, which may be closed to users.
if [[ $kind == gpu ]]; then
    check "nvidia-smi answers" 0 nvidia-smi
    check "Horovod has NCCL" 0 bash -c 'horovodrun --check-build | grep "\[X\] NCCL"'
fi
check "doctor (9: unfit, see the file)" "0 9" hvdperf doctor
check_two "scaling and communication of ${models[0]}" "0 6" \
    session 3 test_scaling.py --models "${models[0]}" -k "weak_scaling or communication"
check "parity of ${models[1]}" "0 6" session 2 test_parity.py --models "${models[1]}"
check_two "devices and libraries of that session" 0 evidence
check "a recipe, such as mixed precision" "0 6" session 2 test_recipe.py --models "${models[0]}"
check_two "a rank of half the speed FAILs" 1 \
    session 3 test_scaling.py --models "${models[0]}" --inject slow:rank=1,factor=2 -k "weak_scaling and np2"
check_two "a rank that is killed FAILs its case" 1 \
    session 1 test_scaling.py --models "${models[0]}" --inject kill:rank=1,phase=block -k "weak_scaling and np2"
check "nothing has stayed on a GPU" 0 nothing_left
check_two "a session against the same stack" "0 6" \
    session 3 test_scaling.py --models "${models[0]}" --against "$(command -v python)" -k "weak_scaling and np2"
check "the report" 0 hvdperf report --results "$results" --out "$here/report.html"

file=hvdperf-selftest-$kind-$(date -u +%Y%m%dT%H%M%SZ).tar.gz
tar -czf "$file" -C "$here" selftest.txt results/runs report.html 2>/dev/null
rm -rf "$here"
echo "$failed checks failed; attach $file"
exit "$failed"
