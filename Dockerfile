# syntax=docker/dockerfile:1
#
# The three services, each its own image:
#
#   docker build --target runner  -t areev/runner-svc:0.1.0  .
#   docker build --target sandbox -t areev/sandbox-svc:0.1.0 .
#   docker build --target broker  -t areev/broker-svc:0.1.0  .
#
# The final stages hold the program, glibc and the CA certificates: no shell, no package manager. They run as 65532 and need
# no writable root. Give BUILD_IMAGE and BASE_IMAGE by digest for builds that can be repeated.
ARG BUILD_IMAGE=rust:1.95-bookworm
ARG BASE_IMAGE=gcr.io/distroless/cc-debian12:nonroot

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
COPY . .
# One build for all three, whichever is asked for first. The target folder is a cache, so the programs are copied out.
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/src/target,sharing=locked \
    cargo build --locked --release --package runner-svc --package sandbox-svc --package broker-svc --bins \
    && install -D -m 0555 -t /out target/release/runner-svc target/release/sandbox-svc target/release/broker-svc \
    && install -d -m 0700 /out/data

FROM ${BASE_IMAGE} AS runner
COPY --from=build /out/runner-svc /usr/local/bin/runner-svc
COPY --from=build --chown=65532:65532 /out/data /var/lib/areev
USER 65532:65532
# gRPC; /livez, /readyz, /metrics
EXPOSE 7410 7411
ENTRYPOINT ["/usr/local/bin/runner-svc"]
CMD ["--data-dir=/var/lib/areev"]

# A native blob (--allow-native) runs in this image's file system: here that means static executables only. For blobs that
# are scripts give a BASE_IMAGE that has their interpreter, such as one with /bin/sh.
FROM ${BASE_IMAGE} AS sandbox
COPY --from=build /out/sandbox-svc /usr/local/bin/sandbox-svc
USER 65532:65532
# gRPC; /livez, /readyz, /metrics
EXPOSE 7420 7421
ENTRYPOINT ["/usr/local/bin/sandbox-svc"]

FROM ${BASE_IMAGE} AS broker
COPY --from=build /out/broker-svc /usr/local/bin/broker-svc
USER 65532:65532
# gRPC; the HTTP door for child processes; /livez, /readyz, /metrics
EXPOSE 7430 7431 7432
ENTRYPOINT ["/usr/local/bin/broker-svc"]
