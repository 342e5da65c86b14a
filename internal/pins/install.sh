#!/bin/sh
# Installs a pinned PJRT plugin: install.sh cpu|tpu|cuda
#
# pip fetches the wheel named in pins.tsv, by hash, and its library is unpacked
# into <user cache>/tpustrategy/plugins/<sha256 of the wheel>/. A second run finds
# it there, compares the library's own hash, and does nothing; a file that was
# truncated or changed is replaced. A file beside the library, *.verified, records
# the size and the modification time of the library that has the hash. The directory appears by one rename, so a
# run that is interrupted, or two at once, never leave half a plugin behind.
# Prints the library's path as the last line of standard output.
set -eu
# What others could write to would not be loaded.
umask go-w

kind=${1:?usage: install.sh cpu|tpu|cuda}
machine=$(uname -m)
here=$(cd "$(dirname "$0")" && pwd)
row_of() { awk -F '\t' -v k="$1" -v m="$machine" '$1 == k && $3 == m' "$here/pins.tsv"; }
row=$(row_of "$kind")
if [ -z "$row" ]; then
  echo "install.sh: no $kind plugin is published for $machine (see pins.tsv)" >&2
  exit 2
fi
# The fields hold no spaces: split the rows into $1..${10}.
# shellcheck disable=SC2046
set -- $(row_of "$kind-tools")
tools=${4:-} tools_version=${5:-} tools_sha=${6:-} tools_platform=${7:-} tool=${8:-} tool_needs=${9:-} tool_sha=${10:-}
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
# A plugin looks for its tools in ../nvidia.
inside=$([ -z "$tools" ] || echo plugin/)$(basename "$library")
path=$dir/$inside

# pinned DIR: whether it has the pinned library, and its tools.
pinned() {
  [ -f "$1/$inside" ] && [ "$(sha256sum <"$1/$inside")" = "$library_sha  -" ] || return 1
  [ -z "$tools" ] || { [ -x "$1/$tool" ] && [ -f "$1/$tool_needs" ] && [ "$(sha256sum <"$1/$tool")" = "$tool_sha  -" ]; }
}
# record DIR: notes the size and the modification time of the library, so that programs hash it only if one
# of them has changed. Without GNU stat, or where DIR cannot be written to, programs do it themselves.
record() {
  line=$(stat -c "$library_sha %s %.9Y" "$1/$inside" 2>/dev/null) || return 0
  [ "$(cat "$1/$inside.verified" 2>/dev/null)" = "$line" ] || (echo "$line" >"$1/$inside.verified") 2>/dev/null || true
}
if pinned "$dir"; then
  record "$dir"
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

# fetch PACKAGE VERSION SHA PLATFORM: its wheel, in $work/PACKAGE.
fetch() {
  echo "Installing $1 $2 with pip (once; clones share it) ..." >&2
  echo "$1==$2 --hash=sha256:$3" >"$work/requirements.txt"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --platform "$4" --python-version 3.11 --require-hashes \
    -r "$work/requirements.txt" -d "$work/$1" >&2 ||
    fail "pip could not fetch $1 $2; its message is above"
}
# unpack WHEELS DIR MEMBER...: each under its own name.
unpack() {
  mkdir -p "$2"
  python3 - "$@" <<'PY'
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
}
fetch "$package" "$version" "$sha" "$platform"
unpack "$work/$package" "$(dirname "$work/unpacked/$inside")" "$library" "$header"
if [ -n "$tools" ]; then
  fetch "$tools" "$tools_version" "$tools_sha" "$tools_platform"
  unpack "$work/$tools" "$work/unpacked/$(dirname "$tool")" "$tool"
  chmod +x "$work/unpacked/$tool"
  unpack "$work/$tools" "$work/unpacked/$(dirname "$tool_needs")" "$tool_needs"
fi

pinned "$work/unpacked" ||
  fail "the library of $package $version did not unpack whole into $plugins: is the disk full?"

record "$work/unpacked"

# What is damaged goes away first; programs that have it open keep it.
if [ -e "$dir" ] && ! pinned "$dir"; then
  mv -T "$dir" "$work/damaged" 2>/dev/null || true
fi
# Two installers may race: the first rename wins and the other finds its result.
if ! mv -T "$work/unpacked" "$dir" 2>/dev/null && ! pinned "$dir"; then
  fail "could not move the plugin to $dir"
fi
echo "$path"
