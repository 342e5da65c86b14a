#!/usr/bin/env bash
# Runs ./examples/multihost on v4-640: 80 machines of 4 chips, from a node of the Cloud TPU API.
#
# Printed by
#   package internal/launch
# Run it with bash in the folder of the Go module; more arguments go to the program.
#
# What it makes is billed until it is deleted. The script deletes what it made when it ends: after
# the program, an error, Ctrl-C, TERM or a closed terminal, at any point. What it could not delete
# it names, with the command that does. KEEP=1 leaves everything. If this machine dies, nothing
# deletes anything: see
#   gcloud compute tpus tpu-vm list --zone=ZONE; gcloud compute tpus queued-resources list --zone=ZONE
set -euo pipefail

PROJECT=${PROJECT:-p}
ZONE=${ZONE:-us-central2-b}
NAME=${NAME:-odd}
REGION=${ZONE%-*}
IMAGE=${IMAGE:-tpu-ubuntu2204-base}
PAUSE=${PAUSE:-10} # seconds between two looks at what is being made or deleted
TRIES=${TRIES:-30} # looks before something counts as not deletable, or not reachable
RESTARTS=${RESTARTS:-10} # how often the program is started again after an interruption
FRUITLESS=${FRUITLESS:-3} # how often in a row after a failure, without a checkpoint in between
BUCKET=${BUCKET:-} # gs://bucket/folder, for one upload that all hosts read; empty copies to each host
arguments=('a b' '$HOME' 'it'\''s' '' "$@")

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
check FRUITLESS '^(0|[1-9][0-9]{0,8})$' 'a number'
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
  if [ -n "${running:-}" ]; then
    if [ "$code" -gt 128 ]; then
      say "the program is told to end: it may take 60 s to save"
      bounded everywhere stop || say "a machine does not answer"
    fi
    [ "$code" -eq 0 ] || keep_logs
    tell_goodput
  fi
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
[ -n "$LIBTPU" ] || LIBTPU=$(go run -mod=mod github.com/tpustrategy/tpustrategy/cmd/tpustrategy install tpu --path)
cp -- "$LIBTPU" "$work/libtpu.so"
# What each host runs. The program is a process of its own that outlives the connection: a second
# call of the same round, as gcloud makes one after it has lost a connection, follows what runs.
cat >"$work/start.sh" <<'END_OF_START'
cd "$(dirname "$0")" || exit 1
alive() { pid=$(cat pid 2>/dev/null) && case $(readlink "/proc/$pid/exe") in "$PWD"/*) ;; *) false ;; esac; }
stop() { # one that saves when it is told to end has the time for it
  left=600
  if alive; then kill "$pid"; fi
  while alive && [ "$left" -gt 0 ]; do
    sleep 0.1
    left=$((left - 1))
  done
  if alive; then kill -9 "$pid" && sleep 1; fi
}
case $1 in
  stop) stop && exit ;;
  log) tail -c 1000000 log && exit ;;
esac
boot=$(cat /proc/sys/kernel/random/boot_id)
lines=+1
if [ "$(cat round 2>/dev/null)" != "$1" ]; then
  stop
  rm -f code pid
  if [ -f log ]; then mv log log.before; fi
  cat saved >saved.before 2>/dev/null
  echo "$boot" >boot
  echo "$1" >round
  shift
  export TPU_LIBRARY_PATH="$PWD/libtpu.so" TPUSTRATEGY_SAVED="$PWD/saved" TPUSTRATEGY_GOODPUT="$PWD/goodput"
  : >log
  setsid sh keep.sh "$@" </dev/null >log 2>&1 &
  echo $! >keeper
elif [ "$(cat boot)" = "$boot" ]; then
  echo "the connection was lost: the last lines of the log, and what comes"
  lines=50
else
  echo "the machine was started anew, and the program is gone"
  exit 69
fi
keeper=$(cat keeper)
tail -n "$lines" -f -s 0.2 --pid="$keeper" log
if [ ! -f code ]; then
  if kill -0 "$keeper" 2>/dev/null; then exit 255; fi # nobody reads here any more
  exit 69
fi
code=$(cat code)
now=$(cat saved 2>/dev/null)
case $code in 1 | 2 | 134 | 137 | 139) ;; *) exit "$code" ;; esac # what a lost peer makes of libtpu, and of Go
if [ -z "$now" ]; then exit "$code"; fi
echo "the program ended with code $code; step $now is saved"
if [ "$now" = "$(cat saved.before)" ]; then exit 77; fi
exit 76
END_OF_START
cat >"$work/keep.sh" <<'END_OF_KEEP'
sh -c 'echo $$ >pid && exec ./multihost "$@"' multihost "$@"
echo $? >code.new
mv code.new code
END_OF_KEEP
archive=$work/$NAME.tar.gz
tar -C "$work" -cf - multihost libtpu.so start.sh keep.sh | "$(command -v pigz || echo gzip)" -1 >"$archive"
say "the program, the plugin and what they are packed into: $(wc -c <"$program"), $(wc -c <"$work/libtpu.so"), $(wc -c <"$archive") bytes"
[ -z "$BUCKET" ] || gcloud storage cp "$archive" "$BUCKET/$NAME.tar.gz" --project="$PROJECT"

# What the other machines' shells run.
there=$(quoted "$NAME")
unpack="mkdir -p $there && tar -xzf $there.tar.gz -C $there"
[ -z "$BUCKET" ] || unpack="gcloud storage cp $(quoted "$BUCKET/$NAME.tar.gz") . && $unpack"
unpack="$unpack && { sudo -n sh -c 'echo always >/sys/kernel/mm/transparent_hugepage/enabled' || true; }"
words=
shown="$there/start.sh"
for word in ${arguments[@]+"${arguments[@]}"}; do
  words+=" $(quoted "$word")"
  shown+=" $(printf '%q' "$word")"
done

make_all() {
  create tpu "$NAME" tpu create "$NAME" --type=v4 --topology=4x4x20 --version="$IMAGE"
}
hosts() { echo "$NAME"; } # gcloud reaches all its machines by itself
healthy() { [ "$(tpu describe "$NAME" --format='value(state)')" = READY ]; }
copy() { tpu scp "$archive" "$1:" --worker=all; }
on() { tpu ssh "$1" --worker=all --command="$2"; } # on MACHINE COMMAND

# everywhere CALL: makes the call for each machine of the slice at once, and waits for all. Its code
# is that of the first that failed, where 1 and 2 come before the codes that ask for a restart.
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
      0.* | 75.* | 69.* | 255.* | 76.* | 77.*) worst=$code ;;
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

unpacked() { on "$1" "$unpack"; }
start() { on "$1" "sh $there/start.sh $round$words"; }
stop() { on "$1" "sh $there/start.sh stop"; }

# keep_logs saves the last of what the program said on each machine, before that may go.
keep_log() { on "$1" "sh $there/start.sh log" >"$1.log"; }
keep_logs() {
  if bounded everywhere keep_log; then
    say "the last that the program said is in $(hosts | sed 's/$/.log/' | paste -s -d ' ' -)"
  else
    say "the log of a machine cannot be read"
  fi
}

# tell_goodput says where the time of the run has gone, over all of its lives. The first machine knows.
goodput() { on "$1" "cat $there/goodput 2>/dev/null || true"; }
tell_goodput() {
  local line
  bounded everywhere goodput >"$work/goodput" || true
  while read -r line; do say "$line"; done <"$work/goodput"
}

# bounded CALL...: as long as the program may take to save, and somewhat longer.
bounded() {
  local job rest=$((60 * 10 + 300))
  "$@" &
  job=$!
  while kill -0 "$job" 2>/dev/null; do
    if [ "$rest" -le 0 ]; then
      pkill -P "$job" || true
      kill "$job" && return 1
    fi
    sleep 0.1
    rest=$((rest - 1))
  done
  wait "$job"
}

equip() {
  make_all
  [ -n "$BUCKET" ] || reached copy
  reached unpacked
}

equip
restart=0
stuck=0     # how often in a row a host did not answer
fruitless=0 # how often in a row the program failed without a new checkpoint
saved=      # whether it has saved at all
while :; do
  round=$(date +%s)-$restart
  running=1
  say "running: $shown"
  code=0
  everywhere start || code=$?
  case $saved.$code in 1.1 | 1.2 | 1.134 | 1.137 | 1.139) code=77 ;; esac # on new machines
  case $code in
    0) say "done" && break ;;
    75) say "interrupted, and saved" && saved=1 ;;
    69) say "a host did not answer: the last lines of the log name it" ;;
    255) say "the connection to a machine is lost" ;;
    76) say "the program failed, after it had saved" && saved=1 ;;
    77) say "the program failed, and has saved nothing new" ;;
    *) say "the program ended with code $code" && exit "$code" ;;
  esac
  restart=$((restart + 1))
  if [ "$restart" -gt "$RESTARTS" ]; then
    say "not started again: that was done $RESTARTS times"
    exit "$code"
  fi
  case $code in
    77) fruitless=$((fruitless + 1)) ;;
    75 | 76) fruitless=0 ;;
  esac
  if [ "$fruitless" -gt "$FRUITLESS" ]; then
    say "not started again: it failed $fruitless times in a row without a new checkpoint"
    exit "$code"
  fi
  if [ "$code" = 69 ]; then stuck=$((stuck + 1)); else stuck=0; fi
  if [ "$stuck" -ge 2 ] || ! healthy; then
    say "the machines are gone, or do not answer again and again: making new ones"
    stuck=0
    keep_logs
    running=
    remove_all
    equip
  fi
  for ((wait = fruitless * fruitless; wait > 0; wait--)); do sleep "$PAUSE"; done
  say "starting again, $restart of $RESTARTS"
done
