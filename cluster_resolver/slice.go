package clusterresolver

import "strconv"

// SliceOptions are common to the resolvers of a TPU slice. The zero value is the
// default.
type SliceOptions struct {
	// JobName is the job of the TPU workers; "" means "worker".
	JobName string
	// Port is given to a host that has none; 0 means [DefaultPort].
	Port int
	// RPCLayer is the scheme of master addresses; "" means "grpc".
	RPCLayer string
	// AllowErrors lets Resolve succeed in spite of findings of severity [SeverityError]; they
	// are in Cluster.Findings then. By default they are a [*CheckError].
	AllowErrors bool
}

func (o SliceOptions) job() string {
	if o.JobName == "" {
		return JobWorker
	}
	return o.JobName
}

func (o SliceOptions) port() int {
	if o.Port == 0 {
		return DefaultPort
	}
	return o.Port
}

func (o SliceOptions) layer() string {
	if o.RPCLayer == "" {
		return DefaultRPCLayer
	}
	return o.RPCLayer
}

// slice makes the cluster of one slice out of both sources. The environment wins
// where it speaks, because it belongs to this process; [Check] reports where the two
// disagree.
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
		AcceleratorType: first(env.AcceleratorType, md.AcceleratorType),
		Topology:        first(env.Topology, md.TPUEnv.Get("TOPOLOGY")),
		Name:            first(env.Name, md.TPUEnv.Get("NODE_ID")),
		Zone:            first(md.Zone, md.TPUEnv.Get("ZONE")),
		Project:         first(md.Project, md.TPUEnv.Get("CONSUMER_PROJECT_ID")),
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

	addresses := env.ProcessAddresses
	id, idName := env.TaskID, "CLOUD_TPU_TASK_ID"
	if len(addresses) == 0 {
		for _, h := range c.TPU.Hosts {
			addresses = append(addresses, joinPort(h, o.port()))
		}
	}
	if id < 0 {
		if id, idName = env.WorkerID, "TPU_WORKER_ID"; id < 0 && md.known() {
			id, idName = md.WorkerID, "agent-worker-number"
		}
		// A worker's number is a process's number only where each worker runs one.
		if n, hosts := len(addresses), len(c.TPU.Hosts); hosts > 0 && n != hosts && n > 1 {
			return Cluster{}, parseError("CLOUD_TPU_TASK_ID", "", "not set, with "+strconv.Itoa(n)+" processes on "+
				strconv.Itoa(hosts)+" hosts", "set it to this process's place in TPU_PROCESS_ADDRESSES")
		}
	}
	switch {
	case id < 0 && len(addresses) == 1:
		id = 0
	case id < 0:
		return Cluster{}, parseError("TPU_WORKER_ID", "", "not set, with "+strconv.Itoa(len(addresses))+" workers",
			"set it to this worker's place in the list of workers")
	case id >= len(addresses):
		return Cluster{}, parseError(idName, strconv.Itoa(id), "out of range, with "+strconv.Itoa(len(addresses))+" tasks",
			"write a number below that")
	}
	c.Task = Task{o.job(), id}
	spec, err := NewClusterSpec(map[string][]string{o.job(): addresses})
	if err != nil {
		return Cluster{}, err
	}
	c.Spec = spec
	c.NumAccelerators = devicesPerTask(c, len(addresses))
	return c, nil
}

func first(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

// orBounds takes the metadata's bounds where the environment has none. They are extra
// facts: one that does not parse is left out.
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

// devicesPerTask counts the devices that the runtime makes for one task; 0 where the
// type is not known or the chips do not divide among the tasks.
func devicesPerTask(c Cluster, tasks int) int {
	a, err := parseAccelerator("", c.TPU.AcceleratorType)
	if err != nil {
		return 0
	}
	switch {
	case c.TPU.VisibleChips != nil:
		return len(c.TPU.VisibleChips) * a.generation.DevicesPerChip
	case c.TPU.ChipsPerProcess != Bounds{}:
		return c.TPU.ChipsPerProcess.Size() * a.generation.DevicesPerChip
	case tasks > 0 && a.chips%tasks == 0:
		return a.chips / tasks * a.generation.DevicesPerChip
	}
	return 0
}
