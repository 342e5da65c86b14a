#!/bin/bash
# Lists the changes of the module's exported API between a commit and the work tree: api.sh COMMIT
#
# The exit code is 1 if a change is incompatible and the module has a release (a version tag). Before the
# first release, incompatible changes are only listed.
set -euo pipefail
cd "$(dirname "$0")/../.."
tool=${TOOL:?the command that runs tools} old=$(mktemp -d)
trap 'git worktree remove --force "$old/tree" 2>/dev/null || true; rm -rf "$old"' EXIT
git worktree add --quiet --detach "$old/tree" "$1"
apidiff() { $tool apidiff -m "$@" github.com/tpustrategy/tpustrategy 2>&1 | { grep -v "^Ignoring internal package" || true; }; }
(cd "$old/tree" && apidiff -w "$old/api")
changes=$(apidiff "$old/api")
echo "${changes:-no change of the exported API since $1}"
[ -z "$(git tag --list 'v*')" ] || ! grep -q '^Incompatible changes' <<<"$changes"
