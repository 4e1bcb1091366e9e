# shellcheck shell=bash
# The GPU environment, part of ci/setup.sh.
#
# uv compiles Horovod apart from the environment, against the package it is told to match, and it can
# be told only one: tensorflow-cpu. So here uv installs everything else, and pip compiles Horovod
# in the environment itself, where it finds TensorFlow, Open MPI, CMake and NCCL.
#
#   HOROVOD_CUDA_HOME, CUDA_HOME      the CUDA toolkit, with nvcc; no Python package of CUDA 12 has it
#   HOROVOD_NCCL_HOME                 a NCCL other than the package nvidia-nccl-cu12
#   HOROVOD_BUILD_CUDA_CC_LIST=80,90  compute capabilities (default: those of the GPUs found, or all)
#
# Checked on a machine without a GPU (gcc 12.2, nvcc 13.0, capabilities 80 and 90, Open MPI 4.1.8,
# nvidia-nccl-cu12 2.21.5): it compiles in two minutes on two cores, imports, nccl_built() is 22105,
# and two ranks add up a tensor on the CPU. What was compiled so ran on an H100 (docs/notebook.md). Not
# checked: several GPUs, MPI=system, HOROVOD_NCCL_HOME, and a toolkit of CUDA 12, which is the one that
# TensorFlow 2.18 was built with.
#
# It builds TensorFlow 2.18.1. By hand, with ci/quirks on CPLUS_INCLUDE_PATH, Horovod also compiled with
# tensorflow 2.20.0 (nvcc 13.5, capability 80, nvidia-nccl-cu12 2.32.3), without LLVM's headers and without
# an abseil of its own; it imports, nccl_built() is 23203, and two ranks train on the CPU. With 2.21.0
# xla_mpi_ops.cc and mpi_ops.cc compile, the link is untried. With 2.19.1 they need llvm/ADT/ArrayRef.h.
# None of the three has run on a GPU.

# The directory of the CUDA toolkit: the one named, or that of the nvcc on PATH. CMake has to be told,
# since that nvcc may be a wrapper somewhere else; nvcc itself says where it is.
cuda_home() {
    local home=${HOROVOD_CUDA_HOME:-${CUDA_HOME:-}}
    if [[ -z $home ]]; then
        home=$(nvcc --dryrun -E -x cu /dev/null 2>&1 | sed -n 's/^#\$ _HERE_=\(.*\)\/bin$/\1/p') || true
    fi
    echo "${home:-/usr/local/cuda}"
}

check_gpu_machine() {
    local nvcc release
    HOROVOD_CUDA_HOME=$(cuda_home)
    export HOROVOD_CUDA_HOME
    nvcc=$HOROVOD_CUDA_HOME/bin/nvcc
    [[ -x $nvcc ]] ||
        fail "$nvcc is missing: apt-get install nvidia-cuda-toolkit, or set CUDA_HOME to a CUDA 12 toolkit"
    if [[ $MPI == system ]]; then
        command -v mpicxx >/dev/null || fail "mpicxx is missing: apt-get install libopenmpi-dev openmpi-bin"
    fi
    release=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
    if [[ $release != 12 ]]; then
        say "caution: $nvcc is of CUDA $release, TensorFlow of CUDA 12; the driver has to know both"
    fi
}

# The capabilities of the GPUs here, as "80,90"; nothing where there are none.
gpu_capabilities() {
    nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
        tr -d . | grep -x '[0-9]*' | sort -un | paste -sd, || true
}

sync_gpu_packages() {
    local skipped=(--no-install-package horovod)
    if [[ $MPI == system ]]; then skipped+=(--no-install-package openmpi); fi
    sync_packages --no-group cpu --group gpu "${skipped[@]}"
    compile_gpu_horovod
}

compile_gpu_horovod() {
    local version nccl capabilities headers begun=$SECONDS
    version=$(sed -n 's/^ *"\(horovod==[^"]*\)",$/\1/p' pyproject.toml)
    say "compiling Horovod with NCCL"
    # TensorFlow 2.21 includes headers of these, which its package has elsewhere.
    headers=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tensorflow/include/external
    export CPLUS_INCLUDE_PATH=${CPLUS_INCLUDE_PATH:+$CPLUS_INCLUDE_PATH:}$headers/highwayhash:$headers/farmhash_archive/src
    if [[ -z ${HOROVOD_NCCL_HOME:-} ]]; then
        # The package has no libnccl.so to link with. Next to Open MPI's libraries it is also found at
        # run time.
        nccl=$("$VENV/bin/python" -c 'import nvidia.nccl as nccl; print(nccl.__path__[0])')
        ln -sfr "$nccl/lib/libnccl.so.2" "$VENV/lib/libnccl.so.2"
        ln -sf libnccl.so.2 "$VENV/lib/libnccl.so"
        export HOROVOD_NCCL_INCLUDE=$nccl/include HOROVOD_NCCL_LIB=$PWD/$VENV/lib
    fi
    capabilities=${HOROVOD_BUILD_CUDA_CC_LIST:-$(gpu_capabilities)}
    if [[ -n $capabilities ]]; then export HOROVOD_BUILD_CUDA_CC_LIST=$capabilities; fi
    (
        export HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_NCCL_LINK=SHARED
        export HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_MPI=1 HOROVOD_WITH_GLOO=1
        export HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1
        MAKEFLAGS=-j$(build_jobs)
        export MAKEFLAGS
        export PATH=$PWD/$VENV/bin:$PATH
        if [[ $MPI != system ]]; then export OPAL_PREFIX=$PWD/$VENV; fi
        # No cache: pip would hand out a wheel that was built against another TensorFlow.
        run_logged "compiling Horovod" .uv/bin/python -m pip -v --python "$VENV/bin/python" install \
            --no-build-isolation --no-deps --no-cache-dir --no-binary horovod "$version"
    )
    say "Horovod compiled after $(elapsed "$begun")"
}
