# The suite with its environment for GPUs: TensorFlow with CUDA, Horovod over NCCL. From the checkout:
#
#   docker build --file ci/containers/cuda.Dockerfile --tag hvdperf-gpu .
#   docker run --rm --gpus=all --shm-size=8g --ulimit memlock=-1 \
#       --volume "$PWD/results:/opt/hvdperf/results" hvdperf-gpu
#
# No image of it has been built yet, since that needs a machine that can download the base. The steps are
# those of `make env GPU=1`, which were run without a GPU (ci/setup_gpu.sh).
# To pin the bases, name their digests: docker buildx imagetools inspect NAME
ARG BUILD=nvidia/cuda:12.5.1-devel-rockylinux9
ARG BASE=nvidia/cuda:12.5.1-base-rockylinux9

FROM ${BUILD} AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3041
RUN dnf install --assumeyes gcc-c++ git make openssh-clients python3.11 python3.11-devel python3.11-pip \
    && dnf clean all
COPY . /opt/hvdperf
WORKDIR /opt/hvdperf
# Compute capabilities of V100, A100 and H100; fewer build faster.
ARG CAPABILITIES=70,80,90
RUN HOROVOD_BUILD_CUDA_CC_LIST=${CAPABILITIES} make env data GPU=1 && rm -rf /root/.cache .uv/cache

FROM ${BASE}
# hadolint ignore=DL3041
RUN dnf install --assumeyes git make openssh-clients python3.11 && dnf clean all \
    # mpirun asks for the user's name.
    && useradd --create-home --uid 1000 hvdperf \
    && install --directory --owner=hvdperf /opt/hvdperf
COPY --from=build --chown=hvdperf /opt/hvdperf /opt/hvdperf
USER 1000
WORKDIR /opt/hvdperf
# What the activate script sets, for every command in the container.
ENV PATH=/opt/hvdperf/.venv-gpu/bin:$PATH LD_LIBRARY_PATH=/opt/hvdperf/.venv-gpu/lib \
    OPAL_PREFIX=/opt/hvdperf/.venv-gpu HVDPERF_CONTAINER=hvdperf-cuda \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN horovodrun --check-build
# Rarely, because a look at the load takes two seconds of the cores that a session measures on.
HEALTHCHECK --interval=12h --timeout=60s --start-period=60s CMD ["hvdperf", "doctor"]
CMD ["pytest", "perf/", "--profile", "gpu"]
