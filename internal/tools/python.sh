#!/bin/sh
# Installs the Python packages of requirements.txt, or of the list that is named, by
# hash and no others, into <user cache>/tpustrategy/python/<sha256 of the list>-<Python's version>/,
# where a second run finds them. Prints that directory, for PYTHONPATH.
#
#   internal/tools/python.sh [requirements-tensorboard.txt]
set -eu
list=$(cd "$(dirname "$0")" && pwd)/${1:-requirements.txt}
cache=${XDG_CACHE_HOME:-${HOME:?set HOME or XDG_CACHE_HOME}/.cache}/tpustrategy/python
version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
dir=$cache/$(sha256sum "$list" | cut -c1-16)-$version
if [ ! -d "$dir" ]; then
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/.install-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  python3 -m pip install --quiet --root-user-action=ignore --disable-pip-version-check --require-hashes --no-deps --only-binary=:all: \
    --target "$work/packages" -r "$list" >&2
  # Two may race: the first rename wins and the other finds its result.
  mv -T "$work/packages" "$dir" 2>/dev/null || [ -d "$dir" ]
fi
echo "$dir"
