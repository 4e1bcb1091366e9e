# The suite with its environment for CPUs. From the checkout:
#
#   docker build --file ci/containers/cpu.Dockerfile --tag hvdperf .
#   docker run --rm --shm-size=2g --volume "$PWD/results:/opt/hvdperf/results" hvdperf
#
# Open MPI's ranks exchange data in /dev/shm, of which docker gives 64 MiB, enough for 8 ranks.
# To pin the base, name its digest: docker buildx imagetools inspect debian:bookworm-slim
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends \
        ca-certificates g++ git make openssh-client python3 python3-dev python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY . /opt/hvdperf
WORKDIR /opt/hvdperf
# The environment has absolute paths, so it is built where it is used.
RUN make env data && rm -rf /root/.cache .uv/cache

FROM ${BASE}
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends \
        ca-certificates git libgomp1 make openssh-client python3 \
    && rm -rf /var/lib/apt/lists/* \
    # mpirun asks for the user's name.
    && useradd --create-home --uid 1000 hvdperf \
    && install --directory --owner=hvdperf /opt/hvdperf
COPY --from=build --chown=hvdperf /opt/hvdperf /opt/hvdperf
USER 1000
WORKDIR /opt/hvdperf
# What the activate script sets, for every command in the container.
ENV PATH=/opt/hvdperf/.venv/bin:$PATH LD_LIBRARY_PATH=/opt/hvdperf/.venv/lib \
    OPAL_PREFIX=/opt/hvdperf/.venv HVDPERF_CONTAINER=hvdperf-cpu
RUN horovodrun --check-build && hvdperf list networks
# Rarely, because a look at the load takes two seconds of the cores that a session measures on.
HEALTHCHECK --interval=12h --timeout=60s --start-period=60s CMD ["hvdperf", "doctor"]
CMD ["pytest", "perf/"]
