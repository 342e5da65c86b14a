package clusterresolver

import (
	"cmp"
	"strconv"
)

// SliceOptions holds the options that the resolvers of a TPU slice have in common. The zero value
// is the default.
type SliceOptions struct {
	// JobName is the name of the TPU workers' job; "" stands for "worker".
	JobName string
	// Port is the port of a host without a port; 0 stands for [DefaultPort].
	Port int
	// RPCLayer is the scheme of master addresses; "" stands for "grpc".
	RPCLayer string
	// AllowErrors lets Resolve succeed in spite of findings of severity [SeverityError], and puts
	// these findings into Cluster.Findings. Without it Resolve returns them as a [*CheckError].
	AllowErrors bool
}

func (o SliceOptions) job() string { return cmp.Or(o.JobName, JobWorker) }

func (o SliceOptions) port() int { return cmp.Or(o.Port, DefaultPort) }

func (o SliceOptions) layer() string { return cmp.Or(o.RPCLayer, DefaultRPCLayer) }

// slice makes the cluster of one slice out of both sources. The environment wins where it speaks,
// because it belongs to this process; [Check] reports where the two disagree.
func (o SliceOptions) slice(resolver string, env Environment, md Metadata) (Cluster, error) {
	c := Cluster{Source: resolver, RPCLayer: o.layer(), Findings: Check(env, md)}
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
	c.TPU.ProcessBounds = orBounds(c.TPU.ProcessBounds, md, "TPU_PROCESS_BOUNDS", "HOST_BOUNDS")
	c.TPU.ChipsPerProcess = orBounds(c.TPU.ChipsPerProcess, md, "TPU_CHIPS_PER_PROCESS_BOUNDS", "CHIPS_PER_HOST_BOUNDS")
	c.TPU.Multislice = multislice(env, md)

	addresses, id, err := o.tasks(env, md, c.TPU.Hosts)
	if err != nil {
		return Cluster{}, err
	}
	c.Task = Task{o.job(), id}
	spec, err := NewClusterSpec(map[string][]string{o.job(): addresses})
	if err != nil {
		return Cluster{}, err
	}
	c.Spec = spec
	processes := len(addresses)
	if env.alone() {
		processes = max(processes, len(c.TPU.Hosts)) // the others have their share of the chips
	}
	c.NumAccelerators = devicesPerTask(c, processes)
	c.AcceleratorsInferred = c.NumAccelerators > 0
	return c, nil
}

// tasks are the addresses of the processes and the place of this one among them.
func (o SliceOptions) tasks(env Environment, md Metadata, hosts []string) (addresses []string, id int, err error) {
	worker, workerName := env.WorkerID, "TPU_WORKER_ID"
	if worker < 0 && md.known() {
		worker, workerName = md.WorkerID, "agent-worker-number"
	}
	addresses = env.ProcessAddresses
	if len(addresses) == 0 {
		if env.alone() && len(hosts) > 1 {
			own := "localhost"
			if worker >= 0 && worker < len(hosts) {
				own = hosts[worker]
			}
			hosts = []string{own}
		}
		for _, h := range hosts {
			addresses = append(addresses, joinPort(h, o.port()))
		}
	}
	n := len(addresses)
	id, idName := env.TaskID, "CLOUD_TPU_TASK_ID"
	if id < 0 {
		// A worker's number is a process's number only where each worker runs one.
		if len(hosts) > 0 && n != len(hosts) && n > 1 {
			return nil, 0, parseError("CLOUD_TPU_TASK_ID", "", "not set, with "+strconv.Itoa(n)+" processes on "+
				strconv.Itoa(len(hosts))+" hosts", "set it to this process's place in TPU_PROCESS_ADDRESSES")
		}
		id, idName = worker, workerName
		if n == 1 && (env.WorkerID < 0 || env.alone() || len(env.ProcessAddresses) == 1) {
			id = 0 // a job of one process, whatever the number of its host in the slice
		}
	}
	switch {
	case id < 0:
		return nil, 0, parseError("TPU_WORKER_ID", "", "not set, with "+strconv.Itoa(n)+" workers",
			"set it to this worker's place in the list of workers")
	case id >= n:
		return nil, 0, parseError(idName, strconv.Itoa(id), "out of range, with "+strconv.Itoa(n)+" tasks",
			"write a number below that")
	}
	return addresses, id, nil
}

// orBounds takes the metadata's bounds where the environment has none. They are extra facts: one
// that does not parse is left out.
func orBounds(b Bounds, md Metadata, keys ...string) Bounds {
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

func multislice(env Environment, md Metadata) Multislice {
	m := env.Megascale
	if !m.complete() {
		told, errs := parseMegascale(md.TPUEnv.Get)
		if len(errs) > 0 || !told.complete() {
			return Multislice{}
		}
		m = told
	}
	return Multislice(m)
}

// devicesPerTask infers the devices that the runtime makes for one task; 0 where the type is not
// known or the chips do not divide among the tasks.
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
		return bounds.chips() * perChip
	case tasks > 0 && a.chips%tasks == 0:
		return a.chips / tasks * perChip
	}
	return 0
}
