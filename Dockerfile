# One image for each role: `docker build --target gateway .`, `docker build --target worker .`
# A worker's image has no agents: copy or mount yours to /agents (docs/deploy.md). `worker-examples` has the examples.

FROM python:3.12-slim-bookworm AS build
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=/opt/runyard
RUN pip install --no-cache-dir uv==0.13.9
WORKDIR /src
COPY pyproject.toml uv.lock ./
COPY shared shared
COPY gateway gateway
COPY workers workers

FROM build AS build-gateway
RUN uv sync --locked --no-dev --no-editable --package runyard-gateway --extra otel

FROM build AS build-worker
RUN uv sync --locked --no-dev --no-editable --package runyard-workers --extra otel

FROM python:3.12-slim-bookworm AS runtime
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin runyard
ENV PATH=/opt/runyard/bin:$PATH PYTHONUNBUFFERED=1 RUNYARD_HOST=0.0.0.0
USER 10001
WORKDIR /opt/runyard

FROM runtime AS gateway
COPY --from=build-gateway /opt/runyard /opt/runyard
EXPOSE 8000
ENTRYPOINT ["python", "-m", "runyard_gateway"]

FROM runtime AS worker
COPY --from=build-worker /opt/runyard /opt/runyard
ENV RUNYARD_AGENTS=/agents
ENTRYPOINT ["python", "-m", "runyard_workers"]

FROM worker AS worker-examples
COPY agents /agents
