#!/usr/bin/env bash
# Brings uPlot, the charting library of the pages, into this folder. The npm package has the files as
# they are; a test of package curve holds them to these hashes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
version=1.6.32
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm pack --silent --pack-destination "$work" "uplot@$version" >/dev/null
tar -xzf "$work/uplot-$version.tgz" -C "$work"
cp "$work"/package/{LICENSE,dist/uPlot.iife.min.js,dist/uPlot.min.css} .
sha256sum --check sha256sums
