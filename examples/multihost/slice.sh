#!/bin/sh
# Trains the digits on a Cloud TPU slice: creates it, puts the command and libtpu on
# its hosts, runs the command on all of them at once, and deletes it.
#
#   PROJECT=my-project ZONE=us-west4-a examples/multihost/slice.sh
#
# TYPE and VERSION choose the slice and its runtime image, NAME its name, KEEP=1
# keeps it. Arguments go to the command.
set -eu
PROJECT=${PROJECT:?set PROJECT to the Google Cloud project}
ZONE=${ZONE:?set ZONE to a zone that has the TPU}
NAME=${NAME:-digits}
TYPE=${TYPE:-v5litepod-16}
VERSION=${VERSION:-v2-alpha-tpuv5-lite}
LIBTPU=${LIBTPU:-}
cd "$(dirname "$0")/../.."

tpu() {
  verb=$1
  shift
  gcloud compute tpus tpu-vm "$verb" "$@" --project="$PROJECT" --zone="$ZONE"
}

work=$(mktemp -d)
finish() {
  rm -rf "$work"
  if [ -z "${KEEP:-}" ]; then
    tpu delete "$NAME" --quiet
  fi
}

[ -n "$LIBTPU" ] || LIBTPU=$(internal/pins/install.sh tpu | tail -n 1)
GOOS=linux GOARCH=amd64 CGO_ENABLED=1 go build -o "$work/multihost" ./examples/multihost

tpu create "$NAME" --accelerator-type="$TYPE" --version="$VERSION"
trap finish EXIT
trap 'exit 130' INT TERM

tpu scp "$work/multihost" "$LIBTPU" "$NAME:" --worker=all
# Every host runs the same command. Each asks its metadata server who it is.
tpu ssh "$NAME" --worker=all \
  --command="chmod +x multihost && TPU_LIBRARY_PATH=\$HOME/$(basename "$LIBTPU") ./multihost -slice -v -logical 1 $*"
