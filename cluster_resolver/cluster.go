package clusterresolver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The job names with a meaning, as in TensorFlow's TF_CONFIG. Any other name is allowed.
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

// Getenv returns the value of an environment variable, and "" if the variable is not set, as
// os.Getenv does. This package reads the environment through a Getenv only.
type Getenv func(name string) string

// get takes a nil Getenv for an empty environment.
func (g Getenv) get(name string) string {
	if g == nil {
		return ""
	}
	return g(name)
}

// Resolver finds out where a job runs: TensorFlow's tf.distribute.cluster_resolver.ClusterResolver.
// Resolve may block on the network, obeys ctx, and returns a value that belongs to the caller. The
// resolvers of this package are safe for concurrent use and do no work before Resolve is called.
type Resolver interface {
	// Name returns a short word for reports that does not change, such as "gke".
	Name() string
	// Resolve returns the cluster. The error matches [ErrNotDetected] if this source does not apply
	// here; it is another error if the source applies but is wrong or fails.
	Resolve(ctx context.Context) (Cluster, error)
}

// Task names one process of a cluster, as the member task of TF_CONFIG does.
type Task struct {
	// Type is the job name: TensorFlow's task_type. "" means that the task is not known.
	Type string `json:"type"`
	// ID is the index in the job, from 0: TensorFlow's task_id.
	ID int `json:"index"`
}

// Known reports whether the task is known.
func (t Task) Known() bool { return t.Type != "" }

// String returns TensorFlow's name of the task, such as "/job:worker/task:2".
func (t Task) String() string {
	if !t.Known() {
		return "(unknown task)"
	}
	return fmt.Sprintf("/job:%s/task:%d", t.Type, t.ID)
}

// Cluster is the answer of a resolver: plain data that belongs to the caller. Its methods use
// neither network nor environment. The zero value is a job of one process.
type Cluster struct {
	// Source is the name of the resolver.
	Source string `json:"source"`
	// Spec says where each task listens: TensorFlow's cluster_spec. For several slices it covers
	// this slice only.
	Spec ClusterSpec `json:"cluster"`
	// Task is this process's place in Spec.
	Task Task `json:"task"`
	// SessionMaster, if set, is the address that Master returns.
	SessionMaster string `json:"session_master,omitempty"`
	// RPCLayer is the scheme of master addresses. "" writes no scheme.
	RPCLayer string `json:"rpc_layer,omitempty"`
	// Environment is TensorFlow's environment string: "" outside Google.
	Environment string `json:"environment,omitempty"`
	// NumAccelerators is the number of TPU devices that one task drives, as the runtime counts
	// devices: cores, or chips where the runtime joins their cores. It is 0 if not known. It is
	// TensorFlow's num_accelerators.
	NumAccelerators int `json:"num_accelerators,omitempty"`
	// AcceleratorsInferred is true if this package took NumAccelerators from a table of accelerator
	// types. If the plugin opens another number of devices, the plugin is right.
	AcceleratorsInferred bool `json:"accelerators_inferred,omitempty"`
	// TPU describes the slice. It is zero if no slice is known.
	TPU TPU `json:"tpu,omitzero"`
	// Findings holds the findings of [Check] that did not stop the resolver.
	Findings []Finding `json:"findings,omitempty"`
}

// TPU describes the slice that a task belongs to, as its sources describe it.
type TPU struct {
	// AcceleratorType is the type, such as "v5litepod-16". Topology is the grid of chips, such as
	// "4x4".
	AcceleratorType string `json:"accelerator_type,omitempty"`
	Topology        string `json:"topology,omitempty"`
	// Name, Zone and Project identify the node in the Cloud TPU API.
	Name    string `json:"name,omitempty"`
	Zone    string `json:"zone,omitempty"`
	Project string `json:"project,omitempty"`
	// Hosts lists the slice's machines in worker order, without ports.
	Hosts []string `json:"hosts,omitempty"`
	// ProcessBounds is the grid of processes, and ChipsPerProcess the grid of chips that each
	// process drives, both as (x, y, z). They are zero if no source gives them.
	ProcessBounds   Bounds `json:"process_bounds,omitzero"`
	ChipsPerProcess Bounds `json:"chips_per_process,omitzero"`
	// VisibleChips lists the chips of the host that this process may use. Nil stands for all.
	VisibleChips []int `json:"visible_chips,omitempty"`
	// Multislice is zero for a job of one slice.
	Multislice Multislice `json:"multislice,omitzero"`
}

// Multislice says which slice of a job of several slices this is. The slices are joined over the
// data-center network.
type Multislice struct {
	// Coordinator is the host where the slices meet. Port is its port, or 0 for the runtime's own.
	Coordinator string `json:"coordinator,omitempty"`
	Port        int    `json:"port,omitempty"`
	// NumSlices is the number of slices, and SliceID the number of this slice, from 0.
	NumSlices int `json:"num_slices"`
	SliceID   int `json:"slice_id"`
}

// Global returns a worker's rank over all slices and the number of ranks, if each slice has
// workersPerSlice workers. Ranks run slice by slice. For a single slice, and for the zero value, it
// returns workerID and workersPerSlice.
func (m Multislice) Global(workerID, workersPerSlice int) (rank, size int) {
	n := max(m.NumSlices, 1)
	return m.SliceID*workersPerSlice + workerID, n * workersPerSlice
}

// Master returns the address to connect to: ClusterResolver.master in TensorFlow. It returns
// SessionMaster if that is set. It returns "" for an empty cluster, for an unknown task, and for
// the only task of a TF_CONFIG, which is this process. Otherwise it returns this task's address
// with the RPC layer in front, such as "grpc://10.1.2.3:8470". The error of a task
// that Spec lacks matches [ErrNoTask].
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
	if c.RPCLayer != "" && !strings.Contains(a, "://") {
		a = c.RPCLayer + "://" + a
	}
	return a, nil
}

// IsChief reports whether this task writes checkpoints and summaries: the chief if the cluster has
// one, and otherwise worker 0. The unknown task of an empty cluster is the only process, and
// therefore the chief.
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

// Leader returns the task that coordinates: the chief if there is one, otherwise task 0 of the
// worker job, and otherwise task 0 of this task's own job.
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

// Clone returns a copy that shares no mutable memory with c.
func (c Cluster) Clone() Cluster {
	c.TPU.Hosts = slices.Clone(c.TPU.Hosts)
	c.TPU.VisibleChips = slices.Clone(c.TPU.VisibleChips)
	c.Findings = slices.Clone(c.Findings)
	return c
}

// String returns a report of several lines for people. Programs should not parse it.
func (c Cluster) String() string {
	var b strings.Builder
	line := func(name, value string) {
		if !isPrintable(value) {
			value = strconv.Quote(value)
		}
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
		line("slice", fmt.Sprintf("%d of %d, coordinator %s", m.SliceID, m.NumSlices, cmp.Or(m.Coordinator, "unknown")))
	}
	for _, f := range c.Findings {
		line("finding", f.String())
	}
	return b.String()
}
