# docker build --build-arg BASE=python:3.11-slim@sha256:… --target retry -t dead-letter-retry .
# `make images` builds the same without Docker, on a root of Debian's packages. docs/how-to/images.md

# What an image is built on: anything with Python 3.11 or later as python3. There is no default, since a tag moves; give one with its
# digest. Where that has no pip, as a small root, BUILDER is one of the same Python that has.
ARG BASE
ARG BUILDER=$BASE

FROM $BUILDER AS build
WORKDIR /build
# Where packages come from, and whom pip trusts, if that is a mirror of your own; nothing of it stays in an image.
ARG PIP_INDEX_URL
ARG PIP_CERT
# What has no wheel for a processor, and is built from its sources, whose hash is pinned as well: faust-streaming on arm64.
ARG FROM_SOURCES=:none:
RUN python3 -m venv --without-pip /venv
COPY release/build.lock release/
RUN python3 -m pip install --no-cache-dir --target /tools --require-hashes --only-binary=:all: -r release/build.lock
COPY release/retry.lock release/
# No compiler is there: without Cython it is what runs where none was. What /tools has as well is not taken for installed.
RUN PYTHONPATH=/tools NO_CYTHON=1 python3 -m pip --python /venv/bin/python install --no-cache-dir --no-build-isolation \
    --ignore-installed --require-hashes --only-binary=:all: --no-binary=$FROM_SOURCES -r release/retry.lock
COPY pyproject.toml README.md LICENSE ./
COPY backoff backoff
COPY retry retry
RUN PYTHONPATH=/tools python3 -m pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
 && python3 -m pip --python /venv/bin/python install --no-cache-dir --no-deps /wheels/*.whl

# The same with PySpark, which is built from its sources by what /tools has.
FROM build AS build-analytics
ARG PIP_INDEX_URL
ARG PIP_CERT
COPY release/analytics.lock release/
RUN PYTHONPATH=/tools python3 -m pip --python /venv/bin/python install --no-cache-dir --no-build-isolation --require-hashes \
    --only-binary=:all: --no-binary=pyspark -r release/analytics.lock

# All that is written, temporary files included, lies in the one volume; the rest of the file system may be read-only.
FROM $BASE AS base
ARG BASE
LABEL org.opencontainers.image.base.name=$BASE
# The user has a name and a home: Java and Spark do not start for one that has none.
RUN echo retry:x:10001: >>/etc/group && echo retry:x:10001:10001::/data:/usr/sbin/nologin >>/etc/passwd \
 && mkdir -m 0700 /data && chown 10001:10001 /data
ENV PATH=/venv/bin:$PATH RETRY_DATA_DIR=/data TMPDIR=/data HOME=/data PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
VOLUME /data
ENTRYPOINT ["retry"]

# Workers, the API and the console.
FROM base AS retry
COPY --from=build /venv /venv
CMD ["worker"]

# The scheduler, with the defaults of the Go scheduler: in a container every interface is its own, and only what is published is reached.
FROM retry AS scheduler
ENV SERVER_ADDR=:8000 METRICS_ADDR=:8001
EXPOSE 8000 8001
ENTRYPOINT ["retry", "scheduler"]
CMD []

# Analytics, with Java and Spark's Kafka source, which a job with a read-only root cannot fetch.
FROM base AS analytics
USER root
# A root without manual pages lacks the folder in which Java's package makes links.
RUN mkdir -p /usr/share/man/man1 && apt-get update && apt-get install --no-install-recommends --yes default-jre-headless \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build-analytics /venv /venv
ARG JAVA_TOOL_OPTIONS
RUN XDG_CACHE_HOME=/opt/cache python3 -c "from retry.jars import jars; jars('spark')" \
 && rm -rf /opt/cache/dead-letter-retry/ivy && chmod -R a+rX /opt/cache
ENV XDG_CACHE_HOME=/opt/cache
USER 10001:10001
# Java and Spark make folders at this place whatever TMPDIR says.
VOLUME /tmp
CMD ["analytics", "report"]
