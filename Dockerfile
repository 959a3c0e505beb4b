# docker build -t ttanalyze . && docker run --rm ttanalyze
# With a GPU: docker run --rm --gpus all -v "$PWD:/work" ttanalyze record -- ./program
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev make
WORKDIR /source
COPY . .
RUN python -m pip wheel --no-deps --wheel-dir /dist .

FROM python:3.12-slim
RUN apt-get update && apt-get install --yes --no-install-recommends binutils libzstd1 \
    && rm -rf /var/lib/apt/lists/*
RUN --mount=type=bind,from=build,source=/dist,target=/dist \
    python -m pip install --no-cache-dir "$(echo /dist/*.whl)[report,sass,scale,tui]"
WORKDIR /work
ENTRYPOINT ["ttanalyze"]
CMD ["demo", "--out", "/tmp/ttanalyze-demo"]
