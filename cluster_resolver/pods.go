package clusterresolver

import (
	"fmt"
	"net"
	"strings"
)

// podInfo contains the variables that Kubernetes sets in every pod. They are used only to check the
// TPU variables.
//
// The sources are "Pod hostname" and "JOB_COMPLETION_INDEX" in
// kubernetes.io/docs/concepts/workloads/controllers/job, and api/jobset/v1alpha2/jobset_types.go of
// kubernetes-sigs/jobset for the pod names of a JobSet.
type podInfo struct {
	// index is JOB_COMPLETION_INDEX plus one, or 0 if it is not set.
	index int
	// name is HOSTNAME: the name of the pod, or the name of the host if the pod uses the host network.
	name string
}

// checkPods checks that the TPU variables match the index and name of the pod.
func (c *configChecker) checkPods() {
	env := c.env
	hosts := env.Hostnames
	if n := len(env.ProcessAddresses); n > 0 && n == len(hosts) {
		// GKE derives both variables from one list of hosts.
		for i, address := range env.ProcessAddresses {
			host, _, err := net.SplitHostPort(address)
			if err == nil && host != hosts[i] && isIP(host) == isIP(hosts[i]) {
				c.add(FindingWorkerHosts, SeverityError, fmt.Sprintf("entry %d of TPU_PROCESS_ADDRESSES", i), host,
					hosts[i]+" from TPU_WORKER_HOSTNAMES", "set both from the same list of hosts, or unset TPU_PROCESS_ADDRESSES")
				break
			}
		}
	}
	if len(hosts) < 2 || env.WorkerID < 0 || env.isSingleProcess() {
		return
	}
	if env.pod.name != "" {
		// If HOSTNAME is at another index, the variables were copied from another pod.
		for i, host := range hosts {
			first, _, _ := strings.Cut(host, ".")
			if i != env.WorkerID && !isIP(host) && first == env.pod.name {
				c.add(FindingWorkerID, SeverityError, "TPU_WORKER_ID", env.WorkerID,
					fmt.Sprintf("%d, the index of HOSTNAME=%s in TPU_WORKER_HOSTNAMES", i, env.pod.name),
					"each pod has a different index; do not set it in the pod template")
				return
			}
		}
	}
	if index := env.pod.index - 1; index >= 0 && index != env.WorkerID {
		c.add(FindingWorkerID, SeverityWarning, "TPU_WORKER_ID", env.WorkerID,
			fmt.Sprintf("%d from JOB_COMPLETION_INDEX", index),
			"if TPU_WORKER_ID is set in the pod template, remove it; GKE sets it")
	}
}
