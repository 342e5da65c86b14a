#!/bin/bash
# Builds a program of this module in build/ and runs it on the CPU plugin: run.sh PACKAGE [ARGUMENT...]
#
# The first run on a machine downloads Go modules and the plugin and compiles about 370 packages. Both
# happen at the same time, and their progress is printed on standard error.
set -euo pipefail
cd "$(dirname "$0")/../.."
package=$1
shift
program=build/$(basename "$package")

echo "Building $package; the first build on a machine takes about a minute." >&2
internal/pins/install.sh cpu >/dev/null &
plugin=$!
trap 'kill "$plugin" 2>/dev/null || true' EXIT
total=$(${GO:-go} list -deps "$package" | wc -l)
# go build -v prints one line for each package that it compiles. GCFLAGS are flags of the compiler.
${GO:-go} build -v -ldflags=-w ${GCFLAGS:+"-gcflags=$GCFLAGS"} -o "$program" "$package" 2>&1 | {
  built=0
  while IFS= read -r line; do
    if [[ $line =~ ^[[:alnum:]_./-]+$ ]]; then
      built=$((built + 1))
      [ $((built % 20)) -ne 0 ] || echo "  compiled $built packages, of at most $total"
    else
      echo "$line"
    fi
  done
} >&2
wait "$plugin"
TF_CPP_MIN_LOG_LEVEL=2 exec "$program" "$@"
