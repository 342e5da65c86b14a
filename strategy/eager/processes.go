package eager

import (
	"bytes"
	"cmp"
	"context"
	"encoding/gob"
	"fmt"
	"reflect"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/nesting"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// In a job with several processes, each process runs the code of its own replicas. At each
// collective call, and at the end, the processes exchange descriptions of their replicas' arguments:
// numbers and strings by value, tensors by dtype and shape, and components by the name of their
// value. All processes therefore make the same decisions, such as whether the replicas passed the
// same object. An error of one process ends the call in all.

// remoteLeaf is a placeholder for an object that another process has, such as a tensor of one of
// its replicas. It only has the shape of the tensor, which is invalid if the object is not a
// tensor.
type remoteLeaf struct{ shape shapes.Shape }

type leafKind byte

const (
	plainLeaf     leafKind = iota // nil, a number, a string or a bool
	tensorLeaf                    // a tensor of this process
	componentLeaf                 // a component of a value or of a variable
	wholeLeaf                     // a value, a variable or an Objects
	objectLeaf                    // any other object
)

// leafInfo describes a leaf of a nest in a message to the other processes.
type leafInfo struct {
	Path  string
	Kind  leafKind
	Value any    // value of a plainLeaf
	Name  string // name of the value or variable of a componentLeaf or wholeLeaf
	// Replica is the replica of a componentLeaf.
	Replica int
	DType   int32
	Dims    []int
}

func (l leafInfo) shape() shapes.Shape {
	if l.Kind != tensorLeaf && l.Kind != componentLeaf {
		return shapes.Invalid()
	}
	return shapes.Make(dtypes.DType(l.DType), l.Dims...)
}

// processState is the message that a process sends to the other processes. For each replica of the
// process it has the current collective call, or "" after the function has returned, and the leaves
// of the argument. Failed is the error of a replica, if any.
type processState struct {
	Calls  []string
	Leaves [][]leafInfo
	Failed string
	Kind   int
}

// nameOf returns a name that identifies the value or variable in all processes.
func nameOf(x any) string {
	switch x := x.(type) {
	case *strategy.Variable:
		return "variable " + x.Path()
	case *strategy.Objects:
		return "objects"
	case strategy.Value:
		return cmp.Or(engine.Internal(x).Origin(), x.(fmt.Stringer).String())
	}
	return ""
}

// setOrigin records for each value in a nest that the call origin created it. A value that already
// has an origin keeps it.
func setOrigin(origin string, nest any) {
	_, _ = nesting.Map("name", nest, func(path string, x any) (any, error) {
		if c, ok := x.(Component); ok && c.value != nil {
			x = c.value
		}
		if v, ok := x.(strategy.Value); ok && !reflect.ValueOf(v).IsNil() {
			engine.Internal(v).SetOrigin(origin + path)
		}
		return x, nil
	})
}

// describeLeaves describes each leaf of a nest for a message to the other processes.
func describeLeaves(call string, nest any) (leaves []leafInfo, err error) {
	_, err = nesting.Map(call, nest, func(path string, x any) (any, error) {
		leaf := leafInfo{Path: path, Kind: objectLeaf}
		setShape := func(s shapes.Shape) { leaf.DType, leaf.Dims = int32(s.DType), slices.Clone(s.Dimensions) }
		switch y := x.(type) {
		case nil, bool, string, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32,
			float64, complex64, complex128:
			leaf.Kind, leaf.Value = plainLeaf, y
		case Component:
			if y != (Component{}) {
				leaf.Kind, leaf.Name, leaf.Replica = componentLeaf, nameOf(y.source()), y.replica
				setShape(y.Shape())
			}
		case strategy.Value, *strategy.Variable, *strategy.Objects:
			if !reflect.ValueOf(y).IsNil() {
				leaf.Kind, leaf.Name = wholeLeaf, nameOf(y)
			}
		default:
			if t, err := hostdata.ToTensor(x); err == nil {
				leaf.Kind = tensorLeaf
				setShape(t.Shape())
			}
		}
		leaves = append(leaves, leaf)
		return x, nil
	})
	return leaves, err
}

// rebuildNest creates the nest of a replica of another process from the descriptions of its leaves.
// local has the nests of this process's replicas, which have the same structure.
func rebuildNest(call string, local []any, leaves []leafInfo) (any, error) {
	return nesting.Zip(call, local, func(_ string, mine []any) (any, error) {
		leaf := leaves[0]
		leaves = leaves[1:]
		switch leaf.Kind {
		case plainLeaf:
			return leaf.Value, nil
		case componentLeaf, wholeLeaf:
			for _, x := range mine {
				c, isComponent := x.(Component)
				switch {
				case isComponent && c != (Component{}) && leaf.Kind == componentLeaf && nameOf(c.source()) == leaf.Name:
					return Component{value: c.value, variable: c.variable, replica: leaf.Replica}, nil
				case !isComponent && leaf.Kind == wholeLeaf && nameOf(x) == leaf.Name:
					return x, nil
				}
			}
		}
		return &remoteLeaf{leaf.shape()}, nil
	})
}

// exchange shares the arguments of a collective call between the processes. It sends the arguments
// of this process's replicas, whose indices are ids, and sets the entries of nests for the replicas
// of other processes. calls has the collective call of each replica in ids. All processes return an
// error if one process has failed, or if the replicas make different calls.
func (e *Extended) exchange(ctx context.Context, ids []int, calls []string, failed error, nests []any) error {
	const op = "the replicas' calls"
	var mine processState
	if failed == nil {
		mine.Calls = calls
		for _, r := range ids {
			leaves, err := describeLeaves(calls[0], nests[r])
			if err != nil {
				failed = err
				break
			}
			mine.Leaves = append(mine.Leaves, leaves)
		}
	}
	if failed != nil {
		text := failed.Error()
		mine = processState{Failed: text[:min(len(text), 2000)], Kind: int(errkind.KindOf(failed))}
	}
	var message bytes.Buffer
	if err := gob.NewEncoder(&message).Encode(mine); err != nil {
		return fault.Wrap(op, err, "")
	}
	all, err := e.strategy.GatherBytes(ctx, op, message.Bytes())
	if failed != nil {
		return failed
	}
	if err != nil {
		return err
	}
	states := make([]processState, len(all))
	for p := range all {
		if err := gob.NewDecoder(bytes.NewReader(all[p])).Decode(&states[p]); err != nil {
			return fault.Wrap(op, err, "start the same program on each process")
		}
		if text := states[p].Failed; text != "" {
			return fault.New(errkind.Kind(states[p].Kind), op, "see the error of that process",
				"process %d failed: %s", p, text)
		}
	}
	return e.fillNests(ids, nests, states)
}

// fillNests sets the entries of nests for the replicas of other processes, from the messages in
// states. ids has the indices of this process's replicas.
func (e *Extended) fillNests(ids []int, nests []any, states []processState) error {
	byReplica := make([]struct {
		call   string
		leaves []leafInfo
	}, len(nests))
	for p, replicas := range e.strategy.ProcessReplicas() {
		if len(states[p].Calls) != len(replicas) || len(states[p].Leaves) != len(replicas) {
			return fault.New(errkind.InternalError, "the replicas' calls", "start the same program on each process",
				"process %d describes %d replicas and has %d", p, len(states[p].Calls), len(replicas))
		}
		for i, r := range replicas {
			at := &byReplica[r]
			at.call, at.leaves = states[p].Calls[i], states[p].Leaves[i]
		}
	}
	calls := make([]string, len(nests))
	for r := range calls {
		calls[r] = byReplica[r].call
	}
	if slices.ContainsFunc(calls, func(call string) bool { return call != calls[0] }) {
		return newJoinError(calls)
	}
	first := byReplica[0].leaves
	var local []any
	for _, r := range ids {
		local = append(local, nests[r])
	}
	for r, at := range byReplica {
		if !slices.EqualFunc(first, at.leaves, func(a, b leafInfo) bool { return a.Path == b.Path }) {
			return fault.New(errkind.AssertionError, cmp.Or(calls[0], "the results"),
				"return the same structure on every replica", "replica %d has members %v, replica 0 %v", r, paths(at.leaves),
				paths(first))
		}
	}
	for r, at := range byReplica {
		if slices.Contains(ids, r) {
			continue
		}
		nest, err := rebuildNest(cmp.Or(calls[0], "the results"), local, at.leaves)
		if err != nil {
			return err
		}
		nests[r] = nest
	}
	return nil
}

func paths(leaves []leafInfo) []string {
	all := make([]string, len(leaves))
	for i, leaf := range leaves {
		all[i] = cmp.Or(leaf.Path, "(one value)")
	}
	return all
}

func (e *Extended) localReplicas() []int { return e.strategy.LocalReplicas() }

// isLocal reports whether this process runs the code of the replica.
func (e *Extended) isLocal(replica int) bool {
	_, ok := slices.BinarySearch(e.localReplicas(), replica)
	return ok
}

// localResults selects the results of this process's replicas. If there are fewer results than
// replicas, every process has run the functions itself, and localResults returns all results.
func (e *Extended) localResults(results []any) []any {
	if len(results) != e.strategy.NumReplicasInSync() {
		return results
	}
	var local []any
	for _, r := range e.localReplicas() {
		local = append(local, results[r])
	}
	return local
}

// localNests exchanges the nests of all replicas between the processes and returns one nest for
// each replica. The parameter mine has the nests of this process's replicas.
func (e *Extended) localNests(ctx context.Context, op string, mine []any, failed error) ([]any, error) {
	s := e.strategy
	if s.NumProcesses() < 2 {
		return mine, failed
	}
	nests, ids := make([]any, s.NumReplicasInSync()), e.localReplicas()
	for i, r := range ids {
		if failed == nil {
			nests[r] = mine[i]
		}
	}
	return nests, e.exchange(ctx, ids, slices.Repeat([]string{op}, len(ids)), failed, nests)
}
