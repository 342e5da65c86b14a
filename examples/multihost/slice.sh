#!/usr/bin/env bash
# Runs ./examples/multihost on v5litepod-16: 4 machines of 4 chips, from a node of the Cloud TPU API.
#
# Printed by
#   tpustrategy launch v5litepod-16 --on tpu-vm --dry-run
# Run it with bash in the folder of the Go module; more arguments go to the program.
#
# What it makes is billed until it is deleted. The script deletes what it made when it ends: after
# the program, an error, Ctrl-C, TERM or a closed terminal, at any point. What it could not delete
# it names, with the command that does. KEEP=1 leaves everything. If this machine dies, nothing
# deletes anything: see
#   gcloud compute tpus tpu-vm list --zone=ZONE; gcloud compute tpus queued-resources list --zone=ZONE
set -euo pipefail

PROJECT=${PROJECT:?set PROJECT to the Google Cloud project}
ZONE=${ZONE:?set ZONE to a zone that has the TPU}
NAME=${NAME:-multihost}
REGION=${ZONE%-*}
IMAGE=${IMAGE:-v2-alpha-tpuv5-lite}
PAUSE=${PAUSE:-10} # seconds between two looks at what is being made or deleted
TRIES=${TRIES:-30} # looks before something counts as not deletable, or not reachable
RESTARTS=${RESTARTS:-10} # how often the program is started again after an interruption
BUCKET=${BUCKET:-} # gs://bucket/folder, for one upload that all hosts read; empty copies to each host
arguments=(-slice -v -logical 1 -wait 10m "$@")

say() { printf 'launch: %s\n' "$*" >&2; }

# check VARIABLE FORM HINT: nothing is called with a value that is not of its form.
check() {
  local LC_ALL=C
  [[ ${!1} =~ $2 ]] || { say "$1 is $(printf '%q' "${!1}"): write $3" && exit 2; }
}
check NAME '^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$' 'small letters, digits and -, at most 40, from a letter on'
check PROJECT '^[a-z0-9][-a-z0-9.:]{0,62}$' 'a project'\''s id, such as my-project'
check ZONE '^[a-z][a-z0-9]{0,30}(-[a-z0-9]{1,20}){1,4}$' 'a zone, such as us-west4-a'
check IMAGE '^[A-Za-z0-9][-A-Za-z0-9._/:@]{0,254}$' 'letters, digits and -._/:@'
check TRIES '^(0|[1-9][0-9]{0,8})$' 'a number'
check PAUSE '^[0-9]{1,9}([.][0-9]{1,9})?$' 'a number of seconds'
[ -z "$BUCKET" ] || check BUCKET '^gs://[a-z0-9][-a-z0-9._]{1,61}[a-z0-9](/[-A-Za-z0-9._]+)*$' 'gs://bucket or gs://bucket/folder'
check RESTARTS '^(0|[1-9][0-9]{0,8})$' 'a number from 0 to 999999999'
[ -z "${TMPDIR:-}" ] || check TMPDIR '^/[^:[:cntrl:]]*$' 'the path of a folder without a colon, which scp takes for a machine'

# quoted WORD: for the shell of another machine, which reads it once more.
quoted() {
  local LC_ALL=C rest=$1 out="'"
  case $rest in '' | *[!a-zA-Z0-9_./:=@%+,-]*) ;; *) printf '%s' "$rest" && return ;; esac
  while [[ $rest == *\'* ]]; do
    out+="${rest%%\'*}'\\''"
    rest=${rest#*\'}
  done
  printf '%s' "$out$rest'"
}

made=() # what may be there, "KIND NAME"; the newest last
work=$(mktemp -d)

# present KIND NAME: 0 if it is there, 1 if it is not, 2 if that cannot be told.
present() {
  local found
  found=$("list_$1" "$2") || return 2
  [ -n "$found" ]
}

# create KIND NAME COMMAND...: makes it, unless there is one of this name, which is not ours.
create() {
  local kind=$1 name=$2 state=0
  shift 2
  present "$kind" "$name" || state=$?
  case $state in
    0) say "there is a $kind $name already, which is left alone: set NAME to another name" && exit 1 ;;
    2) say "cannot tell whether there is a $kind $name: see the error above" && exit 1 ;;
  esac
  made+=("$kind $name") # before the call: one that is interrupted may have made it
  say "making $kind $name"
  "$@"
}

# gone KIND NAME: not there, seen twice, as what was asked for a moment ago may not be listed yet.
gone() {
  local state look
  for look in 1 2; do
    [ "$look" = 1 ] || sleep "$PAUSE"
    state=0
    present "$1" "$2" || state=$?
    [ "$state" -eq 1 ] || return 1
  done
}

remove() {
  local try
  say "deleting $1 $2"
  for ((try = 1; try <= TRIES; try++)); do
    "delete_$1" "$2" || true # whether it worked is seen below
    if gone "$1" "$2"; then
      say "deleted $1 $2"
      return 0
    fi
    sleep "$PAUSE"
  done
  return 1
}

# remove_all deletes what was made, the newest first. What stays is left in the list.
remove_all() {
  local i left=()
  for ((i = ${#made[@]} - 1; i >= 0; i--)); do
    remove "${made[i]%% *}" "${made[i]#* }" || left=("${made[i]}" ${left[@]+"${left[@]}"})
  done
  made=(${left[@]+"${left[@]}"})
  [ "${#made[@]}" -eq 0 ]
}

# how THING: the command that deletes it.
how() { "how_${1%% *}" "${1#* }"; }

finish() {
  local code=$? thing job
  trap '' INT TERM HUP # a second Ctrl-C does not stop the deletion
  trap - EXIT
  set +e
  for job in $(jobs -p); do # calls that are under way, each in a shell of its own
    pkill -P "$job"
    kill "$job"
  done 2>/dev/null
  rm -rf "$work"
  if [ "${#made[@]}" -gt 0 ] && [ -n "${KEEP:-}" ]; then
    for thing in "${made[@]}"; do say "kept, and billed: $thing; delete it with: $(how "$thing")"; done
  elif [ "${#made[@]}" -gt 0 ]; then
    remove_all || {
      for thing in "${made[@]}"; do say "STILL THERE, AND BILLED: $thing; delete it with: $(how "$thing")"; done
      [ "$code" -ne 0 ] || code=1
    }
  fi
  [ -z "$BUCKET" ] || gcloud storage rm "$BUCKET/$NAME.tar.gz" --quiet >/dev/null 2>&1
  exit "$code"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

tpu() { gcloud compute tpus tpu-vm "$@" --project="$PROJECT" --zone="$ZONE"; }
list_tpu() { tpu list --filter="name~(^|/)$1\$" --format='value(name)'; }
delete_tpu() { tpu delete "$1" --quiet; }
how_tpu() { echo "gcloud compute tpus tpu-vm delete $1 --project=$PROJECT --zone=$ZONE"; }

# The program and the plugin, in one archive. Nothing is rented yet.
program=$work/multihost
build() { GOOS=linux GOARCH=amd64 CGO_ENABLED=1 go build -o "$program" ./examples/multihost; }
# needed: the version of the C library that the program needs; empty if it needs none.
needed() { { grep -aoE 'GLIBC_2\.[0-9]+' "$program" || true; } | sort -Vu | tail -n 1; }
newer() { [ "$(printf '%s\n' "$(needed)" GLIBC_2.35 | sort -V | tail -n 1)" != GLIBC_2.35 ]; }
if [ -n "${BINARY:-}" ]; then # built elsewhere
  cp -- "$BINARY" "$program"
else
  build
  if newer && command -v zig >/dev/null; then
    CC="zig cc -target x86_64-linux-gnu.2.35" build
  fi
fi
if newer; then
  say "the program needs C library $(needed), and the image has GLIBC_2.35: build it on an older system, or have zig installed, or set"
  say "  CC='zig cc -target x86_64-linux-gnu.2.35'"
  exit 1
fi
LIBTPU=${LIBTPU:-}
[ -n "$LIBTPU" ] || LIBTPU=$(go run github.com/tpustrategy/tpustrategy/cmd/tpustrategy install tpu | sed -n 's/^tpu  //p')
cp -- "$LIBTPU" "$work/libtpu.so"
# What each host runs. A process of an earlier run that still has the TPU is ended.
cat >"$work/start.sh" <<'END_OF_START'
cd "$(dirname "$0")" || exit 1
old=$(cat pid 2>/dev/null)
case $(readlink "/proc/$old/exe") in "$PWD"/*) kill -9 "$old" && sleep 1 ;; esac
echo $$ >pid
export TPU_LIBRARY_PATH="$PWD/libtpu.so"
exec ./multihost "$@"
END_OF_START
archive=$work/$NAME.tar.gz
tar -C "$work" -cf - multihost libtpu.so start.sh | "$(command -v pigz || echo gzip)" -1 >"$archive"
say "the program, the plugin and what they are packed into: $(wc -c <"$program"), $(wc -c <"$work/libtpu.so"), $(wc -c <"$archive") bytes"
[ -z "$BUCKET" ] || gcloud storage cp "$archive" "$BUCKET/$NAME.tar.gz" --project="$PROJECT"

# What the other machines' shells run.
there=$(quoted "$NAME")
unpack="mkdir -p $there && tar -xzf $there.tar.gz -C $there"
[ -z "$BUCKET" ] || unpack="gcloud storage cp $(quoted "$BUCKET/$NAME.tar.gz") . && $unpack"
unpack="$unpack && { sudo -n sh -c 'echo always >/sys/kernel/mm/transparent_hugepage/enabled' || true; }"
start="sh $there/start.sh"
shown=$start
for word in ${arguments[@]+"${arguments[@]}"}; do
  start+=" $(quoted "$word")"
  shown+=" $(printf '%q' "$word")"
done

make_all() {
  create tpu "$NAME" tpu create "$NAME" --accelerator-type=v5litepod-16 --version="$IMAGE"
}
hosts() { echo "$NAME"; } # gcloud reaches all its machines by itself
healthy() { [ "$(tpu describe "$NAME" --format='value(state)')" = READY ]; }
copy() { tpu scp "$archive" "$1:" --worker=all; }
unpack() { tpu ssh "$1" --worker=all --command="$unpack"; }
start() { tpu ssh "$1" --worker=all --command="$start"; }

# everywhere CALL: makes the call for each machine of the slice at once, and waits for all. Its code
# is that of the first that failed, where 1 and 2 come before the codes of an interruption.
everywhere() {
  local call=$1 host pids=() pid code worst=0
  for host in $(hosts); do
    "$call" "$host" &
    pids+=("$!")
  done
  [ "${#pids[@]}" -gt 0 ] || return 255
  for pid in "${pids[@]}"; do
    code=0
    wait "$pid" || code=$?
    case "$worst.$code" in
      *.0) ;;
      0.* | 75.* | 69.* | 255.*) worst=$code ;;
    esac
  done
  return "$worst"
}

# reached CALL: everywhere, again until all machines take the call: a new machine's ssh is up late.
reached() {
  local try
  for ((try = 1; try <= TRIES; try++)); do
    if everywhere "$1"; then
      return 0
    fi
    say "not all machines have taken it; again in $PAUSE s"
    sleep "$PAUSE"
  done
  say "the machines cannot be reached"
  return 1
}

equip() {
  make_all
  [ -n "$BUCKET" ] || reached copy
  reached unpack
}

equip
restart=0
stuck=0 # how often in a row a host did not answer
while :; do
  say "running: $shown"
  code=0
  everywhere start || code=$?
  case $code in
    0) say "done" && break ;;
    75) say "interrupted, and saved" ;;
    69) say "a host did not answer: the last lines of the log name it" ;;
    255) say "the connection to a machine is lost" ;;
    *) say "the program ended with code $code" && exit "$code" ;;
  esac
  restart=$((restart + 1))
  if [ "$restart" -gt "$RESTARTS" ]; then
    say "not started again: that was done $RESTARTS times"
    exit "$code"
  fi
  if [ "$code" = 69 ]; then stuck=$((stuck + 1)); else stuck=0; fi
  if [ "$stuck" -ge 2 ] || ! healthy; then
    say "the machines are gone, or do not answer again and again: making new ones"
    stuck=0
    remove_all
    equip
  fi
  say "starting again, $restart of $RESTARTS"
done
