# One file, three images: all components (`kai`, the default), reservation pods, scaling pods.
#
#   docker build -t registry/local/kai-scheduler/pykai:0.2.0 .
#   docker build -t registry/local/kai-scheduler/resource-reservation:0.2.0 --target resource-reservation .
#   docker build -t registry/local/kai-scheduler/scaling-pod:0.2.0 --target scaling-pod .
#
# Versions come from constraints.txt; give PYTHON a digest (3.12-slim@sha256:...) for the same bytes every time.
ARG PYTHON=3.12-slim

FROM python:${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 SOURCE_DATE_EPOCH=1577836800
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-deps --wheel-dir dist . \
    && python -m venv --without-pip /opt/kai \
    && pip --python /opt/kai/bin/python install --no-compile -c constraints.txt dist/*.whl \
    # `kai local` is for developers' machines, the tests of dependencies for nobody here.
    && rm -r /opt/kai/lib/python*/site-packages/pykai/local \
    && find /opt/kai/lib -type d -name tests -prune -exec rm -r {} + \
    # Compiled once, by content and not by time: starts fast, and is the same for the same sources.
    && /opt/kai/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/kai/lib

FROM python:${PYTHON} AS runtime
LABEL org.opencontainers.image.title="pykai" \
      org.opencontainers.image.description="A Kubernetes scheduler for AI clusters" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/kai/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
COPY --from=build /opt/kai /opt/kai
# Any user will do (OpenShift chooses one): nothing outside of /tmp is written.
USER 10000:0
WORKDIR /tmp

FROM runtime AS resource-reservation
# The driver's libraries come from the container runtime; without this it does not bring in NVML.
ENV NVIDIA_DRIVER_CAPABILITIES=utility
ENTRYPOINT ["kai", "resource-reservation"]

FROM runtime AS scaling-pod
# It exists to be scheduled. Where it is, it has done its work.
ENTRYPOINT ["true"]

FROM runtime AS kai
ENTRYPOINT ["kai"]
