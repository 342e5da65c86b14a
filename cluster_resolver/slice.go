package clusterresolver

import (
	"cmp"
	"strconv"
)

// SliceOptions contains the options shared by the resolvers of TPU slices.
type SliceOptions struct {
	// JobName is the job name of the TPU workers. "" means "worker".
	JobName string
	// Port is the port of hosts without a port. 0 means [DefaultPort].
	Port int
	// RPCLayer is the scheme of master addresses. "" means "grpc".
	RPCLayer string
	// AllowErrors makes Resolve succeed despite findings of severity [SeverityError]; they are
	// added to Cluster.Findings. Otherwise Resolve returns them as a [*CheckError].
	AllowErrors bool
}

func (o SliceOptions) jobName() string { return cmp.Or(o.JobName, JobWorker) }

func (o SliceOptions) portOrDefault() int { return cmp.Or(o.Port, DefaultPort) }

func (o SliceOptions) rpcLayer() string { return cmp.Or(o.RPCLayer, DefaultRPCLayer) }

// newCluster builds the cluster of one slice from the environment and the metadata. The environment
// takes precedence, because it is specific to this process.
func (o SliceOptions) newCluster(resolver string, env Environment, md Metadata) (Cluster, error) {
	c := Cluster{Source: resolver, RPCLayer: o.rpcLayer(), Findings: Check(env, md)}
	var fatal []Finding
	for _, f := range c.Findings {
		if f.Severity == SeverityError {
			fatal = append(fatal, f)
		}
	}
	if len(fatal) > 0 && !o.AllowErrors {
		return Cluster{}, &CheckError{Resolver: resolver, Findings: fatal}
	}
	c.TPU = TPU{
		AcceleratorType: cmp.Or(env.AcceleratorType, md.AcceleratorType),
		Topology:        cmp.Or(env.Topology, md.TPUEnv.Get("TOPOLOGY")),
		Name:            cmp.Or(env.Name, md.TPUEnv.Get("NODE_ID")),
		Zone:            cmp.Or(md.Zone, md.TPUEnv.Get("ZONE")),
		Project:         cmp.Or(md.Project, md.TPUEnv.Get("CONSUMER_PROJECT_ID")),
		Hosts:           env.Hostnames,
		ProcessBounds:   env.ProcessBounds,
		ChipsPerProcess: env.ChipsPerProcess,
		VisibleChips:    env.VisibleChips,
	}
	if len(c.TPU.Hosts) == 0 {
		for _, e := range md.Endpoints {
			c.TPU.Hosts = append(c.TPU.Hosts, e.Host)
		}
	}
	c.TPU.ProcessBounds = boundsOrMetadata(c.TPU.ProcessBounds, md, "TPU_PROCESS_BOUNDS", "HOST_BOUNDS")
	c.TPU.ChipsPerProcess = boundsOrMetadata(c.TPU.ChipsPerProcess, md, "TPU_CHIPS_PER_PROCESS_BOUNDS",
		"CHIPS_PER_HOST_BOUNDS")
	c.TPU.Multislice = newMultislice(env, md)

	addresses, id, err := o.listTasks(env, md, c.TPU.Hosts)
	if err != nil {
		return Cluster{}, err
	}
	c.Task = Task{o.jobName(), id}
	spec, err := NewClusterSpec(map[string][]string{o.jobName(): addresses})
	if err != nil {
		return Cluster{}, err
	}
	c.Spec = spec
	processes := len(addresses)
	if env.isSingleProcess() {
		processes = max(processes, len(c.TPU.Hosts)) // the chips are distributed over all hosts
	}
	c.NumAccelerators = devicesPerTask(c, processes)
	c.AcceleratorsInferred = c.NumAccelerators > 0
	return c, nil
}

// listTasks returns the addresses of the processes of the slice, and the index of this process.
func (o SliceOptions) listTasks(env Environment, md Metadata, hosts []string) (addresses []string, id int, err error) {
	worker, workerName := env.WorkerID, "TPU_WORKER_ID"
	if worker < 0 && md.isPresent() {
		worker, workerName = md.WorkerID, "agent-worker-number"
	}
	addresses = env.ProcessAddresses
	if len(addresses) == 0 {
		if env.isSingleProcess() && len(hosts) > 1 {
			own := "localhost"
			if worker >= 0 && worker < len(hosts) {
				own = hosts[worker]
			}
			hosts = []string{own}
		}
		for _, h := range hosts {
			addresses = append(addresses, joinPort(h, o.portOrDefault()))
		}
	}
	n := len(addresses)
	id, idName := env.TaskID, "CLOUD_TPU_TASK_ID"
	if id < 0 {
		// The worker index is the process index only if each worker has one process.
		if len(hosts) > 0 && n != len(hosts) && n > 1 {
			return nil, 0, parseError("CLOUD_TPU_TASK_ID", "", "not set, with "+strconv.Itoa(n)+" processes on "+
				strconv.Itoa(len(hosts))+" hosts", "set it to the index of this process in TPU_PROCESS_ADDRESSES")
		}
		id, idName = worker, workerName
		if n == 1 && (env.WorkerID < 0 || env.isSingleProcess() || len(env.ProcessAddresses) == 1) {
			id = 0 // the only process has index 0, independent of the index of its host
		}
	}
	switch {
	case id < 0:
		return nil, 0, parseError("TPU_WORKER_ID", "", "not set, with "+strconv.Itoa(n)+" workers",
			"set it to the index of this worker in the list of workers")
	case id >= n:
		return nil, 0, parseError(idName, strconv.Itoa(id), "out of range, with "+strconv.Itoa(n)+" tasks",
			"use a smaller number")
	}
	return addresses, id, nil
}

// boundsOrMetadata returns b if it is not zero. Otherwise it returns the bounds from the metadata,
// using the first key that is set. Malformed bounds in the metadata are ignored.
func boundsOrMetadata(b Bounds, md Metadata, keys ...string) Bounds {
	for _, k := range keys {
		if b != (Bounds{}) {
			break
		}
		if s := md.TPUEnv.Get(k); s != "" {
			b, _ = ParseBounds(k, s)
		}
	}
	return b
}

func newMultislice(env Environment, md Metadata) Multislice {
	m := env.Megascale
	if !m.isComplete() {
		fromMetadata, errs := parseMegascale(md.TPUEnv.Get)
		if len(errs) > 0 || !fromMetadata.isComplete() {
			return Multislice{}
		}
		m = fromMetadata
	}
	return Multislice(m)
}

// devicesPerTask infers the number of devices that the runtime creates for a task. It returns 0 if
// the accelerator type is unknown or the chips cannot be divided equally among the tasks.
func devicesPerTask(c Cluster, tasks int) int {
	a, err := parseAccelerator("", c.TPU.AcceleratorType)
	if err != nil {
		return 0
	}
	perChip := a.generation.DevicesPerChip
	switch bounds := c.TPU.ChipsPerProcess; {
	case c.TPU.VisibleChips != nil:
		return len(c.TPU.VisibleChips) * perChip
	case bounds != Bounds{} && bounds[3] > 0:
		return bounds.Size()
	case bounds != Bounds{}:
		return bounds.chipCount() * perChip
	case tasks > 0 && a.chips%tasks == 0:
		return a.chips / tasks * perChip
	}
	return 0
}
