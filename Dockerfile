# docker build --target retry -t dead-letter-retry . && docker build --target analytics -t dead-letter-retry-analytics .
FROM python:3.11-slim AS build
WORKDIR /build
RUN python -m venv /venv
COPY requirements.lock ./
RUN /venv/bin/pip install --no-cache-dir --require-hashes --only-binary=:all: --no-binary=pyspark -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY backoff backoff
COPY retry retry
RUN /venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

# Workers, the API and the scheduler.
FROM python:3.11-slim AS retry
COPY --from=build /venv /venv
RUN useradd --create-home --uid 10001 retry && mkdir /data && chown retry /data
USER 10001:10001
ENV PATH=/venv/bin:$PATH RETRY_DATA_DIR=/data PYTHONDONTWRITEBYTECODE=1
ENTRYPOINT ["retry"]
CMD ["worker"]

# The same with Java and Spark's Kafka source, which a job with a read-only root cannot fetch.
FROM retry AS analytics
USER root
ENV XDG_CACHE_HOME=/opt/cache
RUN apt-get update && apt-get install --no-install-recommends --yes default-jre-headless && rm -rf /var/lib/apt/lists/* \
 && python -c "from retry.jars import jars; jars('spark')" && rm -rf /opt/cache/dead-letter-retry/ivy && chmod -R a+rX /opt/cache
USER 10001:10001
CMD ["analytics", "report"]
