# syntax=docker/dockerfile:1
# Paceline for CPUs and for CUDA, from this one file (docs/containers.md):
#   docker build -t paceline:cuda .                                   PyPI's torch brings CUDA's libraries
#   docker build -t paceline:cpu --build-arg TORCH_INDEX=ADDRESS .    ADDRESS: PyTorch's index of CPU builds
ARG PYTHON=3.12.11-slim-bookworm

FROM python:${PYTHON} AS build
ARG TORCH_INDEX=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
RUN python -m venv /opt/paceline
ENV PATH=/opt/paceline/bin:$PATH
# torch first and alone: it is the largest layer, and the last to change.
COPY constraints.txt ./
RUN pip install --constraint constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --constraint constraints.txt '.[nmt,images]'

FROM python:${PYTHON}
# gcc compiles the kernels for this CPU at the first start; tini passes signals on and buries the dead.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev openssh-client tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 paceline \
    && mkdir /runs /data \
    && chown paceline:paceline /runs /data
COPY --from=build /opt/paceline /opt/paceline
ENV PATH=/opt/paceline/bin:$PATH \
    PACELINE_DATA=/data \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 1000:1000
WORKDIR /home/paceline
VOLUME ["/runs", "/data"]
HEALTHCHECK --interval=5m --timeout=30s CMD ["paceline", "--version"]
ENTRYPOINT ["tini", "--", "paceline"]
CMD ["--help"]
