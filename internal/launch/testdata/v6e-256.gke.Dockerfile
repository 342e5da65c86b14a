# docker build -f Dockerfile -t us-east5-docker.pkg.dev/my-project/tpustrategy/multihost:latest . # in the folder of the Go module
FROM golang:1.26-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends python3-pip
WORKDIR /src
COPY . .
RUN go build -o /multihost ./examples/multihost && cp "$(go run -mod=mod github.com/tpustrategy/tpustrategy/cmd/tpustrategy install tpu --path)" /libtpu.so

# The C library is that of the image above: a program runs with the one that it was built for, or
# with a newer one.
FROM debian:bookworm-slim
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
COPY --from=build /multihost /libtpu.so /
ENV TPU_LIBRARY_PATH=/libtpu.so
ENTRYPOINT ["/multihost"]
