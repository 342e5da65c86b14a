package clusterresolver

import (
	"fmt"
	"net"
	"strings"
)

// pod is what Kubernetes itself tells a pod, besides what GKE tells it of its TPU. It is only held
// against the TPU variables: where these are not set, the pod is not part of a slice.
//
// Sources: "Pod hostname" of indexed jobs and "JOB_COMPLETION_INDEX", kubernetes.io/docs/concepts/
// workloads/controllers/job; the names of a JobSet's pods, kubernetes-sigs/jobset,
// api/jobset/v1alpha2/jobset_types.go.
type pod struct {
	// index is JOB_COMPLETION_INDEX plus one, and 0 if that is not set.
	index int
	// name is HOSTNAME: the pod's name, or the machine's where the pod uses its network.
	name string
}

// pods holds the numbers and names that Kubernetes gives a pod against those of its slice.
func (c *checker) pods() {
	env := c.env
	hosts := env.Hostnames
	if n := len(env.ProcessAddresses); n > 0 && n == len(hosts) {
		// GKE writes both from one list; whoever changes one of them alone gets half a slice.
		for i, address := range env.ProcessAddresses {
			host, _, err := net.SplitHostPort(address)
			if err == nil && host != hosts[i] && isIP(host) == isIP(hosts[i]) {
				c.add(FindingWorkerHosts, SeverityError, fmt.Sprintf("entry %d of TPU_PROCESS_ADDRESSES", i), host,
					hosts[i]+" from TPU_WORKER_HOSTNAMES", "set both from the same list of hosts, or unset TPU_PROCESS_ADDRESSES")
				break
			}
		}
	}
	if len(hosts) < 2 || env.WorkerID < 0 || env.alone() {
		return
	}
	if env.pod.name != "" {
		// A worker's own name at another's place: the variables were copied from that pod.
		for i, host := range hosts {
			first, _, _ := strings.Cut(host, ".")
			if i != env.WorkerID && !isIP(host) && first == env.pod.name {
				c.add(FindingWorkerID, SeverityError, "TPU_WORKER_ID", env.WorkerID, fmt.Sprintf("%d, the place of HOSTNAME=%s in TPU_WORKER_HOSTNAMES", i, env.pod.name),
					"every pod has its own number: do not write it into the pod's template")
				return
			}
		}
	}
	if index := env.pod.index - 1; index >= 0 && index != env.WorkerID {
		c.add(FindingWorkerID, SeverityWarning, "TPU_WORKER_ID", env.WorkerID, fmt.Sprintf("%d from JOB_COMPLETION_INDEX", index),
			"if TPU_WORKER_ID is in the pod's template, take it out: GKE sets it")
	}
}
