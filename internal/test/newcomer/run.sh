#!/usr/bin/env bash
# Does what a newcomer does: a fresh clone, the README's commands, a module beside it with three
# programs, every subcommand; without Go's build cache. Prints each step with its seconds, and what
# they say to the file newcomer.log of the folder WORK. The modules come from the module cache.
#
#   run.sh          all
#   CACHE=1 run.sh  with the build cache
set -uo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
work=${WORK:-$(mktemp -d)}
[ -n "${CACHE-}" ] || export GOCACHE="$work/cache"
export TF_CPP_MIN_LOG_LEVEL=2 GOFLAGS="-buildvcs=false -trimpath"
log=$work/newcomer.log failed=0 ran=" "
cd "$work" || exit 1

# step TEXT COMMAND... runs a command, which may end with the code ALLOW.
step() {
	local text=$1 from=$SECONDS code; shift
	echo "+ $*" >>"$log"
	"$@" >>"$log" 2>&1; code=$?
	printf '%-52s %5d s' "$text" $((SECONDS - from))
	if [ $code -ne 0 ] && [ $code -ne "${ALLOW-0}" ]; then printf '  exit code %d' $code; failed=1; fi
	echo
}
tool() { ran="$ran$1 "; step "tpustrategy $1" "$work/bin/tpustrategy" "$@"; }
lines() { grep -cvE '^\s*(//.*)?$' "$1"; }

step "git clone" git clone -q "$root" tpustrategy
step "make run: build, plugin, training" make -C tpustrategy run
gpt() { # the seconds to the first loss, one that fell, and the first sample
	make -C tpustrategy gpt ARGS="-steps 240 -out $work/gpt" 2>&1 | while IFS= read -r line; do
		printf '%4d s  %s\n' $((SECONDS - from)) "$line"
	done | tee -a "$log" | grep -m3 -E 'step (1|20) of|after step 20' 
}
from=$SECONDS; gpt
step "clone: go build ./cmd/tpustrategy" go -C tpustrategy build -o "$work/bin/" ./cmd/tpustrategy

mkdir -p own/conv own/gpt own/plain
cp tpustrategy/examples/mnist/main.go own/conv/
cp tpustrategy/internal/test/newcomer/gpt/main.go own/gpt/
cp tpustrategy/internal/test/newcomer/plain/main.go own/plain/
cd own || exit 1
step "own module: go mod init" go mod init own
step "own module: go mod edit" go mod edit -require=github.com/tpustrategy/tpustrategy@v0.1.0 -replace=github.com/tpustrategy/tpustrategy=../tpustrategy
step "own module: go build -mod=mod ./..." go build -mod=mod -o "$work/bin/own/" ./...
step "own module: tpustrategy install cpu" go run -mod=mod github.com/tpustrategy/tpustrategy/cmd/tpustrategy install cpu
cd .. || exit 1
for program in conv gpt plain; do echo "$program: $(lines own/$program/main.go) lines of code"; done
step "conv: 60 steps on 8 devices" bin/own/conv -steps 60 -out conv
step "conv: on to 80, as 4 x 2" bin/own/conv -steps 80 -out conv -resume -replicas 4 -logical 2
step "gpt: 40 steps, samples" bin/own/gpt -out lm
step "plain: one device" env GOMLX_BACKEND=tpustrategy bin/own/plain
step "plain: 4 x 2, megatron" env GOMLX_BACKEND=tpustrategy:devices=8,logical=2,rules=megatron bin/own/plain

tool doctor
tool topology v5e:4x4
tool assign v5p:2x2x2 --shape 1,1,2,1 --replicas 4
tool visualize -,logical --shape 256,128 --mesh replica=4,logical=2
tool compile --example digits --topology cpu:8 --logical 2 -o step.json
tool report step.json
tool compile --example digits --topology cpu:8 --logical 4 -o other.json
ALLOW=6 tool diff step.json other.json
tool curve conv -o curve.html
ran="${ran}watch "; ALLOW=124 step "tpustrategy watch" timeout -s INT 5 bin/tpustrategy watch conv
tool export conv -o model.safetensors
tool install cpu --path
step "tpustrategy install tpu" bin/tpustrategy install tpu
tool plan --example digits --topology v5e:2x2 --probes 4 --compile 1 -o plan.json
tool validate --row 34
tool launch v5litepod-8 --on tpu-vm --dry-run
tool completion bash
tool accept --quick --cpu 8 --hosts 4 --store "$work"
for name in $(bin/tpustrategy --help | sed -n '/^Commands:/,$s/^  \([a-z]*\)  .*/\1/p'); do
	case $ran in *" $name "*) ;; *) echo "tpustrategy $name was not run"; failed=1 ;; esac
done
echo "what they said: $log"
exit $failed
