package memory

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Tensor describes a variable, an argument or a result of the step.
type Tensor struct {
	// Role is "variable", "argument" or "result".
	Role  string `json:"role"`
	Name  string `json:"name"`
	DType string `json:"dtype"`
	// Shape is the shape of one replica's tensor, or of the unsharded tensor if ReplicaShard is set. Shard
	// is the shape of the shard on one core, with its padding.
	Shape []int `json:"shape"`
	Shard []int `json:"shard"`
	// PerReplica is true if the tensor differs between replicas, and false if it is the same on all
	// replicas.
	PerReplica bool `json:"per_replica"`
	// ReplicaShard is nil unless the tensor is sharded over the replicas.
	ReplicaShard *ReplicaShard `json:"cut,omitempty"`
	// Annotation is the sharding over the logical devices as written in the step. Spec is the
	// sharding over the mesh.
	Annotation string `json:"annotation"`
	Spec       string `json:"spec"`
	// BytesPerCore is the size of the shard on each core. TotalBytes is the size of Shape.
	BytesPerCore int64 `json:"bytes_per_core"`
	TotalBytes   int64 `json:"total_bytes"`
	// Copies is the number of logical devices of a replica that have each element of the replica's
	// tensor.
	Copies int `json:"copies"`
	// Donated is true if a result reuses the tensor's memory.
	Donated bool `json:"donated,omitempty"`
	// Starts contains, for each logical device of replica 0, the first index of its shard in each
	// dimension. It is empty if each logical device has the whole tensor.
	Starts [][]int `json:"starts,omitempty"`
}

// ReplicaShard describes how a tensor is sharded over the replicas. Each replica stores Size
// indices of dimension Dim. The last replicas may store fewer indices or none.
type ReplicaShard struct {
	Dim      int `json:"dim"`
	Replicas int `json:"replicas"`
	Size     int `json:"part"`
}

// Tensors returns the variables, arguments and results of a step. variables[i] is true if argument
// i of the module is a variable. The updated values of variables are not listed as results, because
// they are stored in the memory of the variables.
func Tensors(m *spmd.Module, variables []bool, replicas, logicalDevices int) ([]Tensor, error) {
	all := []Tensor{}
	updated := map[int]bool{}
	for i, a := range m.Arguments {
		role := "argument"
		if i < len(variables) && variables[i] {
			role = "variable"
		}
		if a.Donated {
			updated[a.Result] = true
		}
		t, err := newTensor(m.Mesh, role, a, replicas, logicalDevices)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	for i, result := range m.Results {
		if updated[i] {
			continue
		}
		t, err := newTensor(m.Mesh, "result", result, replicas, logicalDevices)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

func newTensor(mesh sharding.Mesh, role string, p spmd.ShardedTensor, replicas, logicalDevices int) (Tensor, error) {
	fail := func(err error) (Tensor, error) {
		return Tensor{}, &errkind.Fault{Op: "report: " + role, Subject: fmt.Sprintf("%q", p.Name), Err: err}
	}
	copies, err := sharding.ReplicationFactor(mesh, p.Spec)
	if err != nil {
		return fail(err)
	}
	shape := p.ReplicaShard.UnshardedDims(p.LocalDims)
	var shard *ReplicaShard
	if p.ReplicaShard.IsSharded() {
		shard = &ReplicaShard{Dim: p.ReplicaShard.Dim, Replicas: replicas, Size: p.ReplicaShard.ShardSize(replicas)}
	} else if !p.PerReplica {
		copies /= replicas
	}
	t := Tensor{
		Role: role, Name: p.Name, DType: p.DType.String(), Shape: nonNil(shape), Shard: nonNil(p.ShardDims),
		PerReplica: p.PerReplica, ReplicaShard: shard, Annotation: p.Annotation.String(), Spec: p.Spec.String(),
		BytesPerCore: int64(p.DType.Size()) * product(p.ShardDims), TotalBytes: int64(p.DType.Size()) * product(shape),
		Copies: max(copies, 1), Donated: p.Donated,
	}
	for device := 0; device < logicalDevices && (t.Copies < logicalDevices || shard != nil); device++ {
		// The first devices of the mesh belong to replica 0.
		ranges, err := sharding.IndexRanges(mesh, p.Spec, p.GlobalDims, device)
		if err != nil {
			return fail(err)
		}
		start := []int{}
		for _, r := range ranges {
			start = append(start, r.Start)
		}
		t.Starts = append(t.Starts, start)
	}
	return t, nil
}

func nonNil(dims []int) []int { return append([]int{}, dims...) }

func product(dims []int) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= int64(d)
	}
	return n
}

// ArgumentBytes returns the size of the variables and arguments on each core.
func ArgumentBytes(tensors []Tensor) (n int64) {
	for _, t := range tensors {
		if t.Role != "result" {
			n += t.BytesPerCore
		}
	}
	return n
}
