package clusterresolver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The job names with a special meaning, as in TensorFlow's TF_CONFIG. Other names are allowed.
const (
	JobChief     = "chief"
	JobWorker    = "worker"
	JobPS        = "ps"
	JobEvaluator = "evaluator"
	// jobMaster is TensorFlow's old name for the chief.
	jobMaster = "master"
)

// DefaultRPCLayer is the default scheme of master addresses.
const DefaultRPCLayer = "grpc"

// Getenv returns the value of an environment variable, or "" if the variable is not set, like
// os.Getenv. This package reads the environment only through a Getenv.
type Getenv func(name string) string

// lookup returns the value of a variable. A nil Getenv represents an empty environment.
func (g Getenv) lookup(name string) string {
	if g == nil {
		return ""
	}
	return g(name)
}

// Resolver determines the cluster of a job. It corresponds to TensorFlow's
// tf.distribute.cluster_resolver.ClusterResolver. The resolvers of this package are safe for
// concurrent use, and do nothing before Resolve is called.
type Resolver interface {
	// Name returns a short, constant name such as "gke" for messages.
	Name() string
	// Resolve returns the cluster, which the caller owns. It may block on the network until ctx is
	// done. The error matches [ErrNotDetected] if the source does not apply. Other errors mean that
	// the source applies but is invalid or failed.
	Resolve(ctx context.Context) (Cluster, error)
}

// Task identifies one process of a cluster, like the member task of TF_CONFIG.
type Task struct {
	// Type is the job name (TensorFlow's task_type), or "" if the task is unknown.
	Type string `json:"type"`
	// ID is the index of the task in its job, from 0 (TensorFlow's task_id).
	ID int `json:"index"`
}

// IsKnown reports whether the task is known.
func (t Task) IsKnown() bool { return t.Type != "" }

// String returns TensorFlow's name of the task, such as "/job:worker/task:2".
func (t Task) String() string {
	if !t.IsKnown() {
		return "(unknown task)"
	}
	return fmt.Sprintf("/job:%s/task:%d", t.Type, t.ID)
}

// Cluster is the result of a resolver. It is plain data, and its methods use neither the network
// nor the environment. The zero value is a job with one process.
type Cluster struct {
	// Source is the name of the resolver.
	Source string `json:"source"`
	// Spec contains the address of each task (TensorFlow's cluster_spec). In a job with several
	// slices it contains only the tasks of this slice.
	Spec ClusterSpec `json:"cluster"`
	// Task is the task of this process in Spec.
	Task Task `json:"task"`
	// SessionMaster, if set, is the address that Master returns.
	SessionMaster string `json:"session_master,omitempty"`
	// RPCLayer is the scheme of master addresses. If "", addresses have no scheme.
	RPCLayer string `json:"rpc_layer,omitempty"`
	// Environment is TensorFlow's environment string. It is "" outside Google.
	Environment string `json:"environment,omitempty"`
	// NumAccelerators is the number of TPU devices of a task (TensorFlow's num_accelerators), or 0
	// if it is unknown. A device is a core, or a chip if the runtime combines the cores of a chip.
	NumAccelerators int `json:"num_accelerators,omitempty"`
	// AcceleratorsInferred is true if NumAccelerators was inferred from the accelerator type. In
	// this case the number of devices that the plugin reports takes precedence.
	AcceleratorsInferred bool `json:"accelerators_inferred,omitempty"`
	// TPU describes the slice. It is the zero value if no slice is known.
	TPU TPU `json:"tpu,omitzero"`
	// Findings contains the findings of [Check] that did not make the resolver fail.
	Findings []Finding `json:"findings,omitempty"`
}

// TPU describes the TPU slice to which a task belongs.
type TPU struct {
	// AcceleratorType is the accelerator type, such as "v5litepod-16". Topology is the grid of
	// chips, such as "4x4".
	AcceleratorType string `json:"accelerator_type,omitempty"`
	Topology        string `json:"topology,omitempty"`
	// Name, Zone and Project identify the node in the Cloud TPU API.
	Name    string `json:"name,omitempty"`
	Zone    string `json:"zone,omitempty"`
	Project string `json:"project,omitempty"`
	// Hosts lists the hosts of the slice in worker order, without ports.
	Hosts []string `json:"hosts,omitempty"`
	// ProcessBounds is the grid of processes. ChipsPerProcess is the grid of chips of each process.
	// They are zero if they are not specified.
	ProcessBounds   Bounds `json:"process_bounds,omitzero"`
	ChipsPerProcess Bounds `json:"chips_per_process,omitzero"`
	// VisibleChips lists the chips of the host that this process can use. Nil means all chips.
	VisibleChips []int `json:"visible_chips,omitempty"`
	// Multislice is the zero value for a job with one slice.
	Multislice Multislice `json:"multislice,omitzero"`
}

// Multislice identifies the slice in a job with several slices, which are connected by the
// data-center network.
type Multislice struct {
	// Coordinator is the host that coordinates the slices. Port is its port, or 0 for the default
	// of the runtime.
	Coordinator string `json:"coordinator,omitempty"`
	Port        int    `json:"port,omitempty"`
	// NumSlices is the number of slices. SliceID is the index of this slice, from 0.
	NumSlices int `json:"num_slices"`
	SliceID   int `json:"slice_id"`
}

// GlobalRank returns the rank of a worker over all slices and the number of ranks. Each slice has
// workersPerSlice workers, and ranks are ordered by slice. For one slice and for the zero value, it
// returns workerID and workersPerSlice.
func (m Multislice) GlobalRank(workerID, workersPerSlice int) (rank, size int) {
	n := max(m.NumSlices, 1)
	return m.SliceID*workersPerSlice + workerID, n * workersPerSlice
}

// Master returns the address to connect to (TensorFlow's ClusterResolver.master). If SessionMaster
// is set, Master returns it. For an empty cluster, an unknown task, and the only task of a
// TF_CONFIG, it returns "". Otherwise it returns the address of this task with the RPC layer, such
// as "grpc://10.1.2.3:8470". The error matches [ErrNoTask] if Spec does not contain the task.
func (c Cluster) Master() (string, error) {
	switch {
	case c.SessionMaster != "":
		return c.SessionMaster, nil
	case c.Spec.Len() == 0 || (c.Spec.Len() == 1 && c.Source == tfConfigName) || !c.Task.IsKnown():
		return "", nil
	}
	return c.MasterFor(c.Task)
}

// MasterFor returns the address of the given task with the RPC layer. The error matches [ErrNoTask]
// if Spec does not contain the task.
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

// IsChief reports whether this task writes checkpoints and summaries. It is true for the task of
// the job "chief" or, if the cluster has no chief, for worker 0. It is also true for an unknown
// task in an empty cluster, because this is the only process.
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

// Leader returns the task that coordinates the cluster: the chief if there is one, otherwise task 0
// of the job "worker", otherwise task 0 of the job of this task.
func (c Cluster) Leader() Task {
	for _, job := range []string{JobChief, jobMaster, JobWorker} {
		if c.Spec.NumTasks(job) > 0 {
			return Task{job, 0}
		}
	}
	if c.Task.IsKnown() {
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

// String returns a description with several lines. Its format can change.
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
