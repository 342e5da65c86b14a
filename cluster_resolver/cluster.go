package clusterresolver

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Job names with a meaning. Any other name is allowed.
const (
	JobChief     = "chief"
	JobWorker    = "worker"
	JobPS        = "ps"
	JobEvaluator = "evaluator"
	// jobMaster is TensorFlow's old name for the chief.
	jobMaster = "master"
)

// DefaultRPCLayer is the scheme of a master address.
const DefaultRPCLayer = "grpc"

// Getenv reads one variable; the empty string means that it is not set. os.Getenv
// is one. This package reads the environment through it and in no other way.
type Getenv func(name string) string

// Resolver finds out where a job runs. Resolve may block on the network, obeys ctx,
// and returns a value that belongs to the caller. Implementations here are safe for
// concurrent use and do no work before Resolve is called.
type Resolver interface {
	// Name is a short stable word for reports, such as "gke".
	Name() string
	// Resolve returns the cluster, an error matching [ErrNotDetected] if this source
	// does not apply here, or another error if it applies but is wrong or failing.
	Resolve(ctx context.Context) (Cluster, error)
}

// Task names one process of a cluster.
type Task struct {
	// Type is the job name. Empty means that the task is not known.
	Type string `json:"type"`
	// ID is the index in the job, from 0.
	ID int `json:"index"`
}

// Known reports whether the task was told.
func (t Task) Known() bool { return t.Type != "" }

func (t Task) String() string {
	if !t.Known() {
		return "(unknown task)"
	}
	return fmt.Sprintf("/job:%s/task:%d", t.Type, t.ID)
}

// Cluster is what a resolver found: plain data that belongs to the caller. Its
// methods are pure and touch neither network nor environment. The zero value is a
// job of one local process.
type Cluster struct {
	// Source names the resolver that found it.
	Source string `json:"source"`
	// Spec is where each task listens. For several slices it covers this slice only.
	Spec ClusterSpec `json:"cluster"`
	// Task is this process's place in Spec.
	Task Task `json:"task"`
	// SessionMaster, if set, overrides what Master computes.
	SessionMaster string `json:"session_master,omitempty"`
	// RPCLayer is the scheme of master addresses; empty means none is written.
	RPCLayer string `json:"rpc_layer,omitempty"`
	// Environment is TensorFlow's environment string: "" outside Google.
	Environment string `json:"environment,omitempty"`
	// NumAccelerators is how many TPU devices one task drives, as the runtime counts
	// them: cores, or chips where it joins their cores. 0 if not known.
	NumAccelerators int `json:"num_accelerators,omitempty"`
	// AcceleratorsInferred says that NumAccelerators follows from the accelerator
	// type by a table, and was not told: devices that are another number are right.
	AcceleratorsInferred bool `json:"accelerators_inferred,omitempty"`
	// TPU describes the slice; its zero value means that nothing is known of one.
	TPU TPU `json:"tpu,omitzero"`
	// Findings are the suspicious but not fatal results of [Check].
	Findings []Finding `json:"findings,omitempty"`
}

// TPU describes the slice a task belongs to, as the sources tell it.
type TPU struct {
	// AcceleratorType is such as "v5litepod-16"; Topology such as "4x4", in chips.
	AcceleratorType string `json:"accelerator_type,omitempty"`
	Topology        string `json:"topology,omitempty"`
	// Name, Zone and Project identify the node in the Cloud TPU API.
	Name    string `json:"name,omitempty"`
	Zone    string `json:"zone,omitempty"`
	Project string `json:"project,omitempty"`
	// Hosts are the slice's machines in worker order, without ports.
	Hosts []string `json:"hosts,omitempty"`
	// ProcessBounds is the grid of processes, ChipsPerProcess the grid of chips that
	// each drives, both (x, y, z); zero if not told.
	ProcessBounds   Bounds `json:"process_bounds,omitzero"`
	ChipsPerProcess Bounds `json:"chips_per_process,omitzero"`
	// VisibleChips are the chips of the host this process may use; nil means all.
	VisibleChips []int `json:"visible_chips,omitempty"`
	// Multislice is zero for a job of one slice.
	Multislice Multislice `json:"multislice,omitzero"`
}

// Multislice is this slice's place in a job of several slices, joined over the
// data-center network.
type Multislice struct {
	// Coordinator is the host that the slices meet at, Port its port, 0 for the
	// runtime's own.
	Coordinator string `json:"coordinator,omitempty"`
	Port        int    `json:"port,omitempty"`
	// NumSlices is how many slices there are, SliceID which one this is.
	NumSlices int `json:"num_slices"`
	SliceID   int `json:"slice_id"`
}

// Global returns a worker's rank over all slices and the number of ranks, when each
// slice has workersPerSlice workers. Ranks run slice by slice. For one slice, or the
// zero value, these are the worker id and workersPerSlice.
func (m Multislice) Global(workerID, workersPerSlice int) (rank, size int) {
	n := max(m.NumSlices, 1)
	return m.SliceID*workersPerSlice + workerID, n * workersPerSlice
}

// Master returns the address to connect to: SessionMaster if set; "" for an empty
// cluster, an unknown task, or the only task of a TF_CONFIG, which is local; otherwise this task's address with the RPC layer
// in front, as in "grpc://10.1.2.3:8470". A task that Spec lacks is a [*LookupError].
func (c Cluster) Master() (string, error) {
	switch {
	case c.SessionMaster != "":
		return c.SessionMaster, nil
	case c.Spec.Len() == 0 || (c.Spec.Len() == 1 && c.Source == tfConfigName) || !c.Task.Known():
		return "", nil
	}
	return c.MasterFor(c.Task)
}

// MasterFor returns the address of any task, with the RPC layer in front.
func (c Cluster) MasterFor(t Task) (string, error) {
	a, err := c.Spec.Address(t.Type, t.ID)
	if err != nil {
		return "", err
	}
	return masterURL(c.RPCLayer, a), nil
}

func masterURL(layer, address string) string {
	if layer == "" || strings.Contains(address, "://") {
		return address
	}
	return layer + "://" + address
}

// IsChief reports whether this task writes checkpoints and summaries: the chief if
// the cluster has one, else worker 0. An unknown task of an empty cluster is the
// only process there is, hence the chief.
func (c Cluster) IsChief() bool {
	switch c.Task.Type {
	case JobChief, jobMaster:
		return true
	case JobPS, JobEvaluator:
		return false
	case "":
		return c.Spec.Len() == 0
	}
	return c.Task.ID == 0 && c.Spec.NumTasks(JobChief) == 0 && c.Spec.NumTasks(jobMaster) == 0
}

// Leader returns the task that coordinates: the chief if there is one, else task 0 of
// the worker job, else of this task's own job.
func (c Cluster) Leader() Task {
	for _, job := range []string{JobChief, jobMaster, JobWorker} {
		if c.Spec.NumTasks(job) > 0 {
			return Task{job, 0}
		}
	}
	if c.Task.Known() {
		return Task{c.Task.Type, 0}
	}
	return Task{JobWorker, 0}
}

// Clone returns a copy that shares no memory with c that anyone can write.
func (c Cluster) Clone() Cluster {
	c.TPU.Hosts = slices.Clone(c.TPU.Hosts)
	c.TPU.VisibleChips = slices.Clone(c.TPU.VisibleChips)
	c.Findings = slices.Clone(c.Findings)
	return c
}

// String is a report of several lines for people: no part of it is meant to be parsed.
func (c Cluster) String() string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" && value != "0" {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	line("source", c.Source)
	line("task", c.Task.String())
	for t, a := range c.Spec.All() {
		fmt.Fprintf(&b, "  %s %s\n", t, a)
	}
	if m, err := c.Master(); err == nil {
		line("master", m)
	}
	line("tpu devices per task", fmt.Sprint(c.NumAccelerators))
	line("accelerator type", c.TPU.AcceleratorType)
	line("topology", c.TPU.Topology)
	line("node", c.TPU.Name)
	line("process bounds", c.TPU.ProcessBounds.String())
	line("chips per process", c.TPU.ChipsPerProcess.String())
	if c.TPU.VisibleChips != nil {
		line("visible chips", joinInts(c.TPU.VisibleChips))
	}
	if m := c.TPU.Multislice; m.NumSlices > 0 {
		line("slice", fmt.Sprintf("%d of %d, coordinator %s", m.SliceID, m.NumSlices, orUnknown(m.Coordinator)))
	}
	for _, f := range c.Findings {
		line("finding", f.String())
	}
	return b.String()
}
