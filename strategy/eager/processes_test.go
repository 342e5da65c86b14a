package eager_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/prochost"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// processMeshes lists jobs with several replicas in a process, with one replica in a process, and
// with replicas that span processes.
var processMeshes = []struct{ processes, replicas, logical int }{{2, 8, 1}, {8, 8, 1}, {4, 4, 2}, {4, 2, 4}}

// onProcesses runs a program in each process of each job.
func onProcesses(t *testing.T, program func(ctx context.Context, s *strategy.TPUStrategy) error) {
	sys := plugintest.System(t, 8)
	for _, m := range processMeshes {
		t.Run(fmt.Sprintf("%d processes, %dx%d", m.processes, m.replicas, m.logical), func(t *testing.T) {
			for _, semantics := range []strategy.Semantics{0, strategy.TensorFlowMirrored} {
				opts := strategy.Options{Replicas: m.replicas, LogicalDevices: m.logical, Semantics: semantics}
				errs := strategytest.OnProcesses(t, sys, simhost.Options{Processes: m.processes, Patience: 20 * time.Second}, opts,
					program)
				strategytest.NoErrors(t, errs)
			}
		})
	}
}

func scalar(x float32) *tensors.Tensor { return tensors.FromScalar(x) }

// same returns an error if got differs from want.
func same(what string, want, got any) error {
	if fmt.Sprint(want) != fmt.Sprint(got) {
		return fmt.Errorf("%s: %v instead of %v", what, got, want)
	}
	return nil
}

// sumTo returns 1 + 2 + ... + n.
func sumTo(n int) float32 { return float32(n * (n + 1) / 2) }

func TestEachProcessRunsOnlyItsOwnReplicas(t *testing.T) { onProcesses(t, ownReplicas) }

func ownReplicas(ctx context.Context, s *strategy.TPUStrategy) error {
	e := eager.Of(s)
	var ran, updated, made []int
	out, err := e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
		ran = append(ran, rc.ReplicaIDInSyncGroup())
		return []any{scalar(float32(rc.ReplicaIDInSyncGroup() + 1)), fmt.Sprint(rc.ReplicaIDInSyncGroup()), 7, "all"}, nil
	})
	if err != nil {
		return err
	}
	v, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{})
	if err != nil {
		return err
	}
	each, err := e.UpdateEach(ctx, v, func(u *eager.UpdateContext, _ ...any) (any, error) {
		updated = append(updated, u.ReplicaID())
		return u.ReplicaID(), nil
	})
	if err != nil {
		return err
	}
	values, err := e.ValuesFromFunction(ctx, func(at eager.ValueContext) (any, error) {
		made = append(made, at.ReplicaIDInSyncGroup)
		return float32(at.ReplicaIDInSyncGroup + 1), nil
	})
	if err != nil {
		return err
	}
	mine := s.LocalReplicas()
	parts := out.([]any)
	errs := []error{
		same("replicas that ran", mine, ran), same("components that were updated", mine, updated),
		same("values that were made", mine, made),
		same("results of the update", mine, each), same("a number that is the same on all replicas", 7, parts[2]),
		same("a string", "all", parts[3]),
	}
	for _, x := range []any{parts[0], values} {
		results, err := e.LocalResultsOf(x)
		if err != nil {
			return err
		}
		if len(results) != len(mine) {
			return fmt.Errorf("%d local results of replicas %v", len(results), mine)
		}
		for i, c := range results {
			got, err := c.(eager.Component).Local(ctx)
			if err != nil {
				return err
			}
			errs = append(errs, same("local result", float32(mine[i]+1), got.Value()))
		}
		// A value that only some processes have is used as with one process.
		sum, err := e.Reduce(ctx, strategy.Sum, x)
		if err != nil {
			return err
		}
		total, err := sum.(*strategy.Mirrored).Float64(ctx)
		errs = append(errs, err, same("sum", sumTo(s.NumReplicasInSync()), float32(total)))
	}
	names, err := e.LocalResultsOf(parts[1])
	errs = append(errs, err, same("local objects", fmt.Sprint(mine), fmt.Sprint(names)))
	for r := range s.NumReplicasInSync() {
		_, err := e.SelectReplica(r, parts[1])
		if wantRemote := !slices.Contains(mine, r); errors.Is(err, strategy.ErrRemote) != wantRemote {
			errs = append(errs, fmt.Errorf("object of replica %d: %v", r, err))
		}
	}
	return errors.Join(errs...)
}

// Collectives, writes, merge calls and reads return the same results with several processes as with
// one.
func TestJoinedCallsOfSeveralProcessesReturnWhatOnesDo(t *testing.T) { onProcesses(t, joinedCalls) }

func joinedCalls(ctx context.Context, s *strategy.TPUStrategy) error {
	e, n := eager.Of(s), s.NumReplicasInSync()
	summed, err := s.NewVariable(ctx, float32(10), strategy.VariableOptions{Name: "summed",
		Aggregation: strategy.AggregateSum})
	if err != nil {
		return err
	}
	own, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Name: "own", Synchronization: strategy.OnRead,
		Aggregation: strategy.AggregateSum})
	if err != nil {
		return err
	}
	outer, err := e.ValuesFromFunction(ctx, func(at eager.ValueContext) (any,
		error) {
		return float32(10 * at.ReplicaIDInSyncGroup), nil
	})
	if err != nil {
		return err
	}
	double := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.MulScalar(in[0], 2)}
	}, strategy.FunctionOptions{})
	var calls int
	out, err := e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, args ...any) (any, error) {
		id := rc.ReplicaIDInSyncGroup()
		mine := scalar(float32(id + 1))
		got := map[string]any{}
		var err error
		step := func(name string, x any, failed error) {
			got[name], err = x, errors.Join(err, failed)
		}
		x, failed := rc.AllReduce(strategy.Sum, mine)
		step("all_reduce", x, failed)
		x, failed = rc.AllReduce(strategy.Mean, scalar(3))
		step("of a number", x, failed)
		x, failed = rc.AllGather(tensors.FromValue(make([]float32, id+1)), 0)
		step("all_gather of different sizes", x, failed)
		x, failed = rc.Add(args[0], 1)
		step("argument + 1", x, failed)
		x, failed = rc.Add(id, 0.5)
		step("numbers", x, failed)
		x, failed = rc.AssignAdd(summed, mine)
		step("write that is summed", x, failed)
		x, failed = rc.Assign(own, mine)
		step("own write", x, failed)
		x, failed = rc.ReadAcross(own)
		step("read across", x, failed)
		x, failed = rc.MergeCall(func(ctx context.Context, merged ...any) (any, error) {
			calls++
			return e.Reduce(ctx, strategy.Sum, merged[0])
		}, mine)
		step("merge call", x, failed)
		doubled, failed := rc.Call(double, mine)
		if failed == nil {
			step("function", doubled[0], nil)
		}
		v, failed := rc.NewVariable(scalar(float32(id+5)), strategy.VariableOptions{Name: "made"})
		step("new variable", v, errors.Join(failed))
		w, failed := rc.NewVariable(func() any { return float32(id + 6) }, strategy.VariableOptions{Name: "by function"})
		step("new variable of a function", w, failed)
		got["argument"] = args[0]
		got["mirrored of one id"], failed = rc.AllReduce(strategy.Sum, 1.0)
		if a, b := got["all_reduce"], got["of a number"]; id == 0 {
			got["one or the other"] = a
		} else {
			got["one or the other"] = b
		}
		return got, errors.Join(err, failed)
	}, outer)
	if err != nil {
		return err
	}
	got := out.(map[string]any)
	read := func(name string) any {
		switch x := got[name].(type) {
		case *strategy.Variable:
			value, failed := x.Value(ctx)
			if failed != nil {
				return failed
			}
			return value.Value()
		case strategy.Value:
			value, failed := x.Local(ctx, s.LocalReplicas()[0])
			if failed != nil {
				return failed
			}
			return value.Value()
		}
		return got[name]
	}
	id, total := float32(s.LocalReplicas()[0]), sumTo(n)
	errs := []error{
		same("all_reduce", total, read("all_reduce")), same("of a number", 3, read("of a number")),
		same("all_gather", make([]float32, n*(n+1)/2), read("all_gather of different sizes")),
		same("argument + 1", 10*id+1, read("argument + 1")), same("numbers", id+0.5, read("numbers")),
		same("write that is summed", 10+total, read("write that is summed")), same("own write", id+1, read("own write")),
		same("read across", total, read("read across")), same("merge call", total, read("merge call")),
		same("function", 2*(id+1), read("function")),
		same("new variable", 5, read("new variable")), same("new variable of a function", 6,
			read("new variable of a function")),
		same("merge functions", 1, calls),
	}
	if got["argument"] != outer {
		errs = append(errs, fmt.Errorf("the components of an argument are not the argument: %v", got["argument"]))
	}
	want := float32(3)
	if id == 0 {
		want = total
	}
	errs = append(errs, same("one value on replica 0, another elsewhere", want, read("one or the other")))
	if x, ok := got["one or the other"].(*strategy.PerReplica); !ok || x.Mirrored() {
		errs = append(errs, fmt.Errorf("values that differ are one: %v", got["one or the other"]))
	}
	return errors.Join(errs...)
}

func TestAnUpdateOfSeveralProcessesComparesTheirValues(t *testing.T) { onProcesses(t, comparedUpdates) }

func comparedUpdates(ctx context.Context, s *strategy.TPUStrategy) error {
	e, n := eager.Of(s), s.NumReplicasInSync()
	v, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{})
	if err != nil {
		return err
	}
	equal, err := e.Update(ctx, v, func(u *eager.UpdateContext, _ ...any) (any, error) {
		if _, err := u.AssignAdd(scalar(2)); err != nil {
			return nil, err
		}
		return scalar(5), nil
	})
	if err != nil {
		return err
	}
	if _, ok := equal.(*strategy.Mirrored); !ok {
		return fmt.Errorf("equal results are %v", equal)
	}
	differing, err := e.Update(ctx, v, func(u *eager.UpdateContext, _ ...any) (any,
		error) {
		return scalar(float32(u.ReplicaID())), nil
	})
	if err != nil {
		return err
	}
	if x, ok := differing.(*strategy.PerReplica); !ok || x.Mirrored() {
		return fmt.Errorf("results that differ are %v", differing)
	}
	_, err = e.Update(ctx, v, func(u *eager.UpdateContext, _ ...any) (any,
		error) {
		return u.Assign(scalar(float32(u.ReplicaID())))
	})
	if (err == nil) != (n == 1) {
		return fmt.Errorf("a write of different values: %v", err)
	}
	value, err := v.Value(ctx)
	if err != nil {
		return err
	}
	return same("the variable", 3, value.Value())
}

// An error of one process's replica is an error in all processes, and the job continues.
func TestAnErrorOfOneProcessEndsTheCallInAll(t *testing.T) { onProcesses(t, errorsOfOneProcess) }

func errorsOfOneProcess(ctx context.Context, s *strategy.TPUStrategy) error {
	mine := errors.New("mine")
	e, last := eager.Of(s), s.NumReplicasInSync()-1
	fails := slices.Contains(s.LocalReplicas(), last)
	check := func(what string, err error) error {
		switch {
		case err == nil:
			return fmt.Errorf("%s: no error", what)
		case fails != errors.Is(err, mine):
			return fmt.Errorf("%s: %v", what, err)
		case !fails && !(strings.Contains(err.Error(), "mine") && strings.Contains(err.Error(), "process")):
			return fmt.Errorf("%s: the error does not name the process and the reason: %v", what, err)
		}
		return nil
	}
	for _, when := range []string{"at once", "after a call", "while the others call", "at the end"} {
		_, err := e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			id := rc.ReplicaIDInSyncGroup()
			if when == "after a call" {
				if _, err := rc.AllReduce(strategy.Sum, 1.0); err != nil {
					return nil, err
				}
			}
			if id == last && when != "at the end" {
				return nil, mine
			}
			if when == "while the others call" {
				return rc.AllReduce(strategy.Sum, 1.0)
			}
			if id == last {
				return nil, mine
			}
			return nil, nil
		})
		if err := check(when, err); err != nil {
			return err
		}
	}
	_, err := e.ValuesFromFunction(ctx, func(at eager.ValueContext) (any, error) {
		if at.ReplicaIDInSyncGroup == last {
			return nil, mine
		}
		return 1, nil
	})
	if err := check("values", err); err != nil {
		return err
	}
	// Test different calls, different structures, and a panic.
	_, err = e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
		if rc.ReplicaIDInSyncGroup() == last {
			return nil, nil
		}
		return rc.AllReduce(strategy.Sum, 1.0)
	})
	if s.NumReplicasInSync() > 1 && !errors.Is(err, eager.ErrJoin) {
		return fmt.Errorf("a replica that does not join: %v", err)
	}
	_, err = e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
		return make([]any, 1+rc.ReplicaIDInSyncGroup()), nil
	})
	if s.NumReplicasInSync() > 1 && errkind.KindOf(err) != errkind.AssertionError {
		return fmt.Errorf("results of different structure: %v", err)
	}
	sum, err := e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any,
		error) {
		return rc.AllReduce(strategy.Sum, 1.0)
	})
	if err != nil {
		return err
	}
	value, err := sum.(strategy.Value).Local(ctx, s.LocalReplicas()[0])
	if err != nil {
		return err
	}
	return same("a sum afterwards", s.NumReplicasInSync(), value.Value())
}

// Regroup accepts the nests of this process's replicas.
func TestRegroupAcceptsTheNestsOfThisProcess(t *testing.T) { onProcesses(t, regroupedNests) }

func regroupedNests(ctx context.Context, s *strategy.TPUStrategy) error {
	e := eager.Of(s)
	nests := make([]any, len(s.LocalReplicas()))
	for i, r := range s.LocalReplicas() {
		nests[i] = map[string]any{"id": scalar(float32(r)), "one": 1}
	}
	out, err := e.Regroup(ctx, nests)
	if err != nil {
		return err
	}
	gathered, err := out.(map[string]any)["id"].(*strategy.PerReplica).Local(ctx, s.LocalReplicas()[0])
	if err != nil {
		return err
	}
	return same("own part", s.LocalReplicas()[0], gathered.Value())
}

// The test repeats the programs with operating system processes, which share no memory.
func TestOperatingSystemProcessesRunTheirOwnReplicas(t *testing.T) {
	const processes = 2
	programs := []func(context.Context, *strategy.TPUStrategy) error{ownReplicas, joinedCalls, comparedUpdates,
		errorsOfOneProcess, regroupedNests, readsInUpdates}
	if h, here, err := prochost.FromEnviron(os.Getenv); here { // this is one of the processes
		require.NoError(t, err)
		ctx := t.Context()
		sys, err := system.Open(ctx, system.Options{Connect: h.Connect()})
		require.NoError(t, err)
		defer sys.Close()
		s, err := strategy.New(sys, strategy.Options{Replicas: 4, LogicalDevices: 2})
		require.NoError(t, err)
		defer s.Close()
		for i, program := range programs {
			require.NoError(t, program(ctx, s), "program %d in process %d", i, s.Process())
		}
		return
	}
	machine, err := prochost.Listen(plugintest.System(t, 8), "unix", filepath.Join(t.TempDir(), "machine"),
		prochost.Options{Patience: 30 * time.Second})
	require.NoError(t, err)
	defer machine.Close()
	var children [processes]*exec.Cmd
	for i := range children {
		h := machine.Host("eager", i, processes)
		h.Plugin = plugintest.Path(t, "cpu")
		env, err := h.Environ()
		require.NoError(t, err)
		children[i] = exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		children[i].Env = append(os.Environ(), env)
		children[i].Stdout, children[i].Stderr = os.Stdout, os.Stderr
		require.NoError(t, children[i].Start())
	}
	for i, c := range children {
		require.NoError(t, c.Wait(), "process %d", i)
	}
}

func readsInUpdates(ctx context.Context, s *strategy.TPUStrategy) error {
	e := eager.Of(s)
	v, err := s.NewVariable(ctx, float32(7), strategy.VariableOptions{Name: "v"})
	if err != nil {
		return err
	}
	own, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Name: "own", Synchronization: strategy.OnRead,
		Aggregation: strategy.AggregateSum})
	if err != nil {
		return err
	}
	_, err = e.Update(ctx, own, func(u *eager.UpdateContext, _ ...any) (any, error) {
		if _, err := u.Assign(scalar(float32(10 * u.ReplicaID()))); err != nil {
			return nil, err
		}
		m, err := own.Read(u.Context())
		if err != nil {
			return nil, err
		}
		value, err := own.Value(u.Context())
		if err != nil {
			return nil, err
		}
		read, err := m.Value(ctx)
		if err != nil {
			return nil, err
		}
		want := float32(10 * u.ReplicaID())
		if err := errors.Join(same("Read", want, read.Value()), same("Value", want, value.Value())); err != nil {
			return nil, err
		}
		if m, err = v.Read(u.Context()); err != nil {
			return nil, err
		}
		read, err = m.Value(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := e.Reduce(u.Context(), strategy.Mean, m); !errors.Is(err, strategy.ErrContext) {
			return nil, fmt.Errorf("a reduction in an update: %v", err)
		}
		return nil, same("a mirrored variable", 7, read.Value())
	})
	return err
}

func TestFunctionsOfAnUpdateReadTheirComponents(t *testing.T) { onProcesses(t, readsInUpdates) }
