# `flashrt serve` in a container; docs/deploy.md says how to build and to run it.
# VARIANT: cpu, or cuda for NVIDIA GPUs.
ARG VARIANT=cpu

FROM python:3.12-slim-bookworm AS build
ARG VARIANT
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/flashrt
WORKDIR /src
# torch from the usual index brings CUDA along, several GB that a CPU has no use for.
RUN if [ "$VARIANT" = cpu ]; then /opt/flashrt/bin/pip install \
      --index-url https://download.pytorch.org/whl/cpu 'torch>=2.11,<2.14'; fi
COPY pyproject.toml README.md LICENSE ./
COPY flashrt flashrt
RUN if [ "$VARIANT" = cuda ]; then /opt/flashrt/bin/pip install '.[gpu]'; \
    else /opt/flashrt/bin/pip install .; fi

FROM python:3.12-slim-bookworm AS run-cpu

FROM python:3.12-slim-bookworm AS run-cuda
# Triton compiles a small C file when a kernel is first launched, so this variant keeps a compiler.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    TRITON_CACHE_DIR=/var/lib/flashrt/triton

FROM run-${VARIANT}
RUN useradd --system --uid 10001 --home-dir /var/lib/flashrt --create-home flashrt \
    && chmod 700 /var/lib/flashrt
COPY --from=build /opt/flashrt /opt/flashrt
ENV PATH=/opt/flashrt/bin:$PATH \
    FLASHRT_HOST=0.0.0.0 \
    FLASHRT_PORT=8000 \
    FLASHRT_DISK_CAPSULE_DIR=/var/lib/flashrt/capsules
USER flashrt
WORKDIR /var/lib/flashrt
VOLUME /var/lib/flashrt
EXPOSE 8000
STOPSIGNAL SIGTERM
# 503 means that the engine has died. While the model loads nobody answers yet.
HEALTHCHECK --interval=30s --timeout=5s --start-period=15m --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['FLASHRT_PORT'] + '/health', timeout=4)"]
ENTRYPOINT ["flashrt"]
CMD ["serve"]
