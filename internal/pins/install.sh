#!/bin/sh
# Installs a pinned PJRT plugin: install.sh cpu|tpu
#
# pip fetches the wheel named in pins.tsv, by hash, and its library is unpacked
# into <user cache>/tpustrategy/plugins/<sha256 of the wheel>/. A second run finds
# it there, holds it against the library's own hash, and does nothing; a file that
# was cut short or changed is replaced. The directory appears by one rename, so a
# run that is interrupted, or two at once, never leave half a plugin behind.
# Prints the library's path as the last line of standard output.
set -eu
# What others could write to would not be loaded.
umask go-w

kind=${1:?usage: install.sh cpu|tpu}
machine=$(uname -m)
here=$(cd "$(dirname "$0")" && pwd)
row=$(awk -F '\t' -v k="$kind" -v m="$machine" '$1 == k && $3 == m' "$here/pins.tsv")
if [ -z "$row" ]; then
  echo "install.sh: no $kind plugin is published for $machine (see pins.tsv)" >&2
  exit 2
fi
# The fields hold no spaces: split the row into $1..${10}.
# shellcheck disable=SC2086
set -- $row
package=$4 version=$5 sha=$6 platform=$7 library=$8 header=$9 library_sha=${10}

# fail WHY...: one line, and what to do without this script.
fail() {
  echo "install.sh: $*" >&2
  exit 1
}
variable=TPUSTRATEGY_$(echo "$kind" | tr '[:lower:]' '[:upper:]')_PLUGIN

cache=${XDG_CACHE_HOME:-${HOME:-}/.cache}
case $cache in
  /.cache) fail "no cache directory: set XDG_CACHE_HOME or HOME" ;;
  /*) ;;
  *) fail "XDG_CACHE_HOME is $cache, a relative path, which programs ignore: make it absolute" ;;
esac
plugins=$cache/tpustrategy/plugins
dir=$plugins/$sha
path=$dir/$(basename "$library")

# pinned FILE: whether it is the pinned library.
pinned() {
  [ -f "$1" ] && [ "$(sha256sum <"$1")" = "$library_sha  -" ]
}
if pinned "$path"; then
  echo "$path"
  exit 0
fi
[ ! -e "$path" ] || echo "install.sh: $path is damaged: it is not the library of $package $version" >&2

python3 -m pip --version >/dev/null ||
  fail "needs python3 with pip; without them, unpack $(basename "$library") from the wheel of $package $version (a zip file) yourself and set $variable to its path"
{ mkdir -p "$plugins" && work=$(mktemp -d "$plugins/.install-XXXXXX"); } ||
  fail "cannot write to $plugins; set XDG_CACHE_HOME to a directory that you can write to"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

echo "Installing $package $version with pip (once; clones share it) ..." >&2
echo "$package==$version --hash=sha256:$sha" >"$work/requirements.txt"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
  --platform "$platform" --python-version 3.11 --require-hashes \
  -r "$work/requirements.txt" -d "$work/wheel" >&2 ||
  fail "pip could not fetch $package $version; its message is above"

mkdir "$work/plugin"
python3 - "$work/wheel" "$work/plugin" "$library" "$header" <<'PY'
import glob, os, shutil, sys, zipfile
wheels, out, *members = sys.argv[1:]
(wheel,) = glob.glob(os.path.join(wheels, "*.whl"))
with zipfile.ZipFile(wheel) as z:
    for member in members:
        if member == "-":
            continue
        with z.open(member) as src, open(os.path.join(out, os.path.basename(member)), "wb") as dst:
            shutil.copyfileobj(src, dst, 1 << 20)
PY

pinned "$work/plugin/$(basename "$library")" ||
  fail "the library of $package $version did not unpack whole into $plugins: is the disk full?"

# What is damaged goes away first; programs that have it open keep it.
if [ -e "$dir" ] && ! pinned "$path"; then
  mv -T "$dir" "$work/damaged" 2>/dev/null || true
fi
# Two installers may race: the first rename wins and the other finds its result.
if ! mv -T "$work/plugin" "$dir" 2>/dev/null && ! pinned "$path"; then
  fail "could not move the plugin to $dir"
fi
echo "$path"
