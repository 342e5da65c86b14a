#!/bin/sh
# Holds the module's imports to its architecture: arrows go one way, and C is in
# one package. Tests may import more.
set -eu
cd "$(dirname "$0")/../.."
bad=0

# forbid PACKAGES IMPORTS: no package matching the first imports one matching the second.
imports=$(go list -f '{{$p := .ImportPath}}{{range .Imports}}{{$p}} {{.}}
{{end}}' ./...)
forbid() {
  hits=$(echo "$imports" | awk -v from="^github.com/tpustrategy/tpustrategy/($1)\$" -v to="^github.com/tpustrategy/tpustrategy/($2)\$" '$1 ~ from && $2 ~ to')
  if [ -n "$hits" ]; then
    echo "imports.sh: these imports point the wrong way:" >&2
    echo "$hits" >&2
    bad=1
  fi
}
forbid 'errkind'                 '.*'
forbid 'sharding'                'pjrt.*|tpu.*|logical.*|lowering.*|strategy.*|cluster_resolver.*'
forbid 'tpu'                     'pjrt.*|tpu/.*|logical.*|lowering.*|strategy.*|cluster_resolver.*'
forbid 'logical'                 'pjrt.*|tpu.*|lowering.*|strategy.*|cluster_resolver.*'
forbid 'lowering|lowering/module|lowering/ragged' 'pjrt.*|tpu.*|strategy.*|cluster_resolver.*'
forbid 'pjrt.*'                  'tpu.*|logical.*|lowering.*|strategy.*|sharding.*|cluster_resolver.*'
forbid 'tpu/system'              'logical.*|lowering.*|strategy.*'
forbid 'cluster_resolver.*'      'pjrt.*|lowering.*|strategy.*|logical.*'

c=$(git grep -l '^import "C"' -- '*.go' | grep -v '^pjrt/internal/capi/' || true)
if [ -n "$c" ]; then
  echo "imports.sh: import \"C\" outside pjrt/internal/capi: $c" >&2
  bad=1
fi
exit $bad
