#!/usr/bin/env bash
# Runs ./examples/multihost on v6e-256: 64 machines of 4 chips, from Google Kubernetes Engine.
#
# Printed by
#   package internal/launch
# Run it with bash in the folder of the Go module; more arguments go to the program.
#
# What it makes is billed until it is deleted. The script deletes what it made when it ends: after
# the program, an error, Ctrl-C, TERM or a closed terminal, at any point. What it could not delete
# it names, with the command that does. KEEP=1 leaves everything. If this machine dies, nothing
# deletes anything: see
#   gcloud container node-pools list --cluster=CLUSTER --location=LOCATION
set -euo pipefail

PROJECT=${PROJECT:-my-project}
ZONE=${ZONE:-us-east5-b}
NAME=${NAME:-multihost}
REGION=${ZONE%-*}
IMAGE=${IMAGE:-$REGION-docker.pkg.dev/$PROJECT/tpustrategy/$NAME:latest}
PAUSE=${PAUSE:-10} # seconds between two looks at what is being made or deleted
TRIES=${TRIES:-30} # looks before something counts as not deletable, or not reachable
CLUSTER=${CLUSTER:-my-cluster}
LOCATION=${LOCATION:-$REGION} # the cluster's own: a region or a zone

say() { printf 'launch: %s\n' "$*" >&2; }

# check VARIABLE FORM HINT: nothing is called with a value that is not of its form.
check() {
  local LC_ALL=C
  [[ ${!1} =~ $2 ]] || { say "$1 is $(printf '%q' "${!1}"): write $3" && exit 2; }
}
check NAME '^[a-z]([-a-z0-9]{0,34}[a-z0-9])?$' 'small letters, digits and -, at most 36, from a letter on'
check PROJECT '^[a-z0-9][-a-z0-9.:]{0,62}$' 'a project'\''s id, such as my-project'
check ZONE '^[a-z][a-z0-9]{0,30}(-[a-z0-9]{1,20}){1,4}$' 'a zone, such as us-west4-a'
check IMAGE '^[A-Za-z0-9][-A-Za-z0-9._/:@]{0,254}$' 'letters, digits and -._/:@'
check TRIES '^(0|[1-9][0-9]{0,8})$' 'a number'
check PAUSE '^[0-9]{1,9}([.][0-9]{1,9})?$' 'a number of seconds'
check CLUSTER '^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$' 'small letters, digits and -, at most 40, from a letter on'
check LOCATION '^[a-z][a-z0-9]{0,30}(-[a-z0-9]{1,20}){1,4}$' 'a region or a zone, such as us-west4'
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
  exit "$code"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

pools() { gcloud container node-pools "$@" --project="$PROJECT" --cluster="$CLUSTER" --location="$LOCATION"; }
list_pool() { pools list --filter="name=$1" --format='value(name)'; }
delete_pool() { pools delete "$1" --quiet; }
how_pool() { echo "gcloud container node-pools delete $1 --project=$PROJECT --cluster=$CLUSTER --location=$LOCATION"; }
list_job() { kubectl get jobset "$1" --ignore-not-found --output=name; }
delete_job() { kubectl delete jobset "$1" --ignore-not-found --wait; }
how_job() { echo "kubectl delete jobset $1"; }

if [ $# -gt 0 ]; then
  say "arguments are in the manifest: have the script printed anew with them, behind --"
  exit 2
fi
# The image. Nothing is rented yet.
docker build -t "$IMAGE" -f - . <<'END_OF_DOCKERFILE'
# docker build -f Dockerfile -t us-east5-docker.pkg.dev/my-project/tpustrategy/multihost:latest . # in the folder of the Go module
FROM golang:1.26-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends python3-pip
WORKDIR /src
COPY . .
RUN go build -o /multihost ./examples/multihost && cp "$(go run -mod=mod github.com/tpustrategy/tpustrategy/cmd/tpustrategy install tpu --path)" /libtpu.so

# The C library is that of the image above: a program runs with the one that it was built for, or
# with a newer one.
FROM debian:bookworm-slim
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
COPY --from=build /multihost /libtpu.so /
ENV TPU_LIBRARY_PATH=/libtpu.so
ENTRYPOINT ["/multihost"]
END_OF_DOCKERFILE
docker push "$IMAGE"
gcloud container clusters get-credentials "$CLUSTER" --project="$PROJECT" --location="$LOCATION"
kubectl get crd jobsets.jobset.x-k8s.io >/dev/null || {
  say "the cluster has no JobSet: install it as https://jobset.sigs.k8s.io/docs/installation says"
  exit 1
}
# Whole lines, of which no argument is one.
sed -e "s|^\\( *image: \\)\"IMAGE_OF_THE_JOB\"\$|\\1\"$IMAGE\"|" -e "s|^  name: \"NAME_OF_THE_JOB\"\$|  name: \"$NAME\"|" >"$work/job.yaml" <<'END_OF_MANIFEST'
# Runs ./examples/multihost on v6e-256: 64 machines of 4 chips, from Google Kubernetes Engine.
#
# Printed by
#   package internal/launch
# GKE sets TPU_WORKER_ID, TPU_WORKER_HOSTNAMES and the rest in each pod.
#
# Hosts of a slice start and end together. Where a pod ends with 75 (interrupted, and saved) or is
# taken away with its machine, all start again, as often as that happens. After another failure, such
# as 69 (a host did not answer) or 1, all start again 10 times.
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: "NAME_OF_THE_JOB"
  annotations:
    alpha.jobset.sigs.k8s.io/exclusive-topology: cloud.google.com/gke-nodepool # a job is one slice
spec:
  failurePolicy:
    maxRestarts: 10
    restartStrategy: BlockingRecreate # no new pod meets one of the run before
    rules:
      - name: interrupted
        action: RestartJobSetAndIgnoreMaxRestarts
        onJobFailureReasons: [PodFailurePolicy]
  replicatedJobs:
    - name: slice
      replicas: 1
      template:
        spec:
          completionMode: Indexed
          completions: 64
          parallelism: 64
          backoffLimit: 0 # one pod that fails ends the job: JobSet starts all of them again
          podFailurePolicy:
            rules:
              - action: FailJob
                onPodConditions:
                  - type: DisruptionTarget
              - action: FailJob
                onExitCodes:
                  containerName: job
                  operator: In
                  values: [75]
          template:
            spec:
              terminationGracePeriodSeconds: 60 # for the checkpoint of an interruption
              restartPolicy: Never
              nodeSelector:
                cloud.google.com/gke-tpu-accelerator: tpu-v6e-slice
                cloud.google.com/gke-tpu-topology: 16x16
              containers:
                - name: job
                  image: "IMAGE_OF_THE_JOB"
                  args: ["-slice", "-v"]
                  env:
                    - name: TPUSTRATEGY_GOODPUT
                      value: /dev/termination-log # the pod's last message: where the time of the run has gone
                  securityContext:
                    privileged: true # libtpu locks more memory than a pod may by default
                  ports:
                    - containerPort: 8471 # where the TPU runtime listens for the other hosts
                  resources:
                    requests:
                      google.com/tpu: 4
                    limits:
                      google.com/tpu: 4
END_OF_MANIFEST

# A node pool is one slice.
for ((slice = 0; slice < 1; slice++)); do
  create pool "$NAME-$slice" pools create "$NAME-$slice" --node-locations="$ZONE" --machine-type=ct6e-standard-4t --num-nodes=64 --scopes=cloud-platform \
    --tpu-topology=16x16
done
create job "$NAME" kubectl apply -f "$work/job.yaml"

# The first pod leaves as its last message where the time of the run has gone, over all of its lives.
tell_goodput() {
  local line
  kubectl get pods --selector=jobset.sigs.k8s.io/jobset-name="$NAME" --output=jsonpath='{.items[*].status.containerStatuses[*].state.terminated.message}' >"$work/goodput" || true
  while read -r line; do [ -z "$line" ] || say "$line"; done <"$work/goodput"
}

# Kubernetes starts the pods again by itself; this only looks.
while :; do
  case $(kubectl get jobset "$NAME" --output=jsonpath='{.status.terminalState}') in
    Completed) say "done" && tell_goodput && break ;;
    Failed) tell_goodput && say "the job failed: kubectl describe jobset $NAME" && kubectl logs --selector=jobset.sigs.k8s.io/jobset-name="$NAME" --prefix --tail=20 && exit 1 ;;
  esac
  kubectl logs --selector=jobset.sigs.k8s.io/jobset-name="$NAME",batch.kubernetes.io/job-completion-index=0 --prefix --tail=1 || true
  sleep "$PAUSE"
done
