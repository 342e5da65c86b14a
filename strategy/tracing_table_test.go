//lint:file-ignore SA1019 The older names are part of what is tested.

package strategy_test

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/compat/contrib"
	v1 "github.com/tpustrategy/tpustrategy/compat/v1"
	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/input/gomlxdata"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/nest"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// tracingWorld has the objects for the calls of the table.
type tracingWorld struct {
	s         *strategy.TPUStrategy
	e         *eager.Extended
	v         *strategy.Variable
	component eager.Component
	value     *strategy.PerReplica
	mirrored  *strategy.Mirrored
	function  *strategy.Function
	compiled  *strategy.CompiledStep
	nested    *nest.Function
	train     *train.Step
	held      *train.Evaluation
	bound     *strategy.Binding
	store     *model.Store
	iterator  *feed.Iterator
	steps     *eager.MultiStepContext
	data      *input.DistributedDataset
	feed      *feed.Feed
	d         *contrib.DistributionStrategy
	dv        *contrib.Variable
	dset      *contrib.PerDeviceDataset
	dit       *contrib.Iterator
	dmirrored *contrib.Mirrored
	one       *v1.Strategy
	oneIt     *v1.InputIterator
	// merged is the value of the merge call, or nil.
	merged *eager.MergeValue
}

var none logical.Annotation

// pure calls have no immediate effect: they read the context, or derive another.
const pure = "pure"

// builds calls build the step's graph in a merge call, and are errors in replica code.
const builds = "builds"

// tracingCalls are all calls with a context parameter, by package, type and name.
var tracingCalls = map[string]struct {
	does string // refuses, if empty
	call func(ctx context.Context, w *tracingWorld) error
}{
	"eager.FromContext":                        {does: pure},
	"eager.InCrossReplicaContext":              {does: pure},
	"eager.InReplicaContext":                   {does: pure},
	"eager.ReplicaContextOf":                   {does: pure},
	"eager.UpdateReplicaID":                    {does: pure},
	"strategy.Tracing":                         {does: pure},
	"strategy.RefuseTracing":                   {does: pure},
	"eager.Extended.WorkerDevices":             {does: pure},
	"eager.Extended.ParameterDevices":          {does: pure},
	"eager.Extended.LogicalDevice":             {does: pure},
	"eager.Extended.ColocateVarsWith":          {does: pure},
	"eager.Extended.Scope":                     {does: pure},
	"contrib.DistributionStrategy.Scope":       {does: pure},
	"contrib.TowerContextOf":                   {does: pure},
	"v1.Strategy.ExperimentalMakeNumpyDataset": {does: pure},
	"v1.Extended.ExperimentalMakeNumpyDataset": {does: pure},

	"strategy.Variable.Assign": {builds, func(ctx context.Context, w *tracingWorld) error {
		return w.v.Assign(ctx,
			float32(1))
	}},
	"strategy.Variable.AssignAdd": {builds, func(ctx context.Context, w *tracingWorld) error {
		return w.v.AssignAdd(ctx,
			float32(1))
	}},
	"strategy.Variable.AssignSub": {builds, func(ctx context.Context, w *tracingWorld) error {
		return w.v.AssignSub(ctx,
			float32(1))
	}},
	"strategy.Variable.Scatter": {builds, func(ctx context.Context, w *tracingWorld) error {
		return w.dv.Variable().Scatter(ctx, strategy.ScatterAdd, []int32{0}, []float32{1})
	}},
	"eager.Extended.ReduceTo": {builds, func(ctx context.Context, w *tracingWorld) error {
		_, err := w.e.ReduceTo(ctx, strategy.Mean, w.merged, eager.To(w.v))
		return err
	}},
	"eager.Extended.BatchReduceTo": {builds, func(ctx context.Context, w *tracingWorld) error {
		_, err := w.e.BatchReduceTo(ctx, strategy.Mean, []eager.ReducePair{{Value: w.merged, To: eager.To(w.v)}})
		return err
	}},
	"eager.Extended.BroadcastTo": {builds, func(ctx context.Context, w *tracingWorld) error {
		_, err := w.e.BroadcastTo(ctx, w.merged, eager.To(w.v))
		return err
	}},
	"eager.Extended.Update": {builds, func(ctx context.Context, w *tracingWorld) error {
		_, err := w.e.Update(ctx, w.v, func(u *eager.UpdateContext, _ ...any) (any, error) { return u.AssignAdd(float32(1)) })
		return err
	}},
	"eager.Extended.UpdateEach": {builds, func(ctx context.Context, w *tracingWorld) error {
		_, err := w.e.UpdateEach(ctx, w.v, func(u *eager.UpdateContext, _ ...any) (any,
			error) {
			return u.AssignAdd(float32(1))
		})
		return err
	}},
	"eager.Extended.UpdateNonSlot": {builds, func(ctx context.Context, w *tracingWorld) error {
		_, err := w.e.UpdateNonSlot(ctx, w.e.NonSlotDevices(), func(u *eager.UpdateContext, _ ...any) (any,
			error) {
			return u.Ops().Add(float32(1), 1)
		})
		return err
	}},
	"eager.Extended.UpdateNonSlotEach": {builds, func(ctx context.Context, w *tracingWorld) error {
		_, err := w.e.UpdateNonSlotEach(ctx, w.e.NonSlotDevices(), func(u *eager.UpdateContext, _ ...any) (any,
			error) {
			return u.Ops().Add(float32(1), 1)
		})
		return err
	}},
	"eager.Extended.Reduce": {builds, func(ctx context.Context, w *tracingWorld) error {
		_, err := eager.Of(w.s).Reduce(ctx, strategy.Mean, w.merged)
		return err
	}},
	"v1.Strategy.Reduce": {builds, func(ctx context.Context, w *tracingWorld) error {
		_, err := w.one.Reduce(ctx, strategy.Mean, w.merged)
		return err
	}},
	"eager.Extended.Gather": {builds, func(ctx context.Context, w *tracingWorld) error {
		_, err := eager.Of(w.s).Gather(ctx, []any{w.dv.Variable()}, 0)
		return err
	}},

	"strategy.Variable.Read": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.v.Read(ctx))
	}},
	"strategy.Variable.Value": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.v.Value(ctx))
	}},
	"strategy.Variable.SaveValue": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.v.SaveValue(ctx))
	}},
	"strategy.Variable.RestoreValue": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return w.v.RestoreValue(ctx, nil)
	}},
	"strategy.Variable.Local": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.v.Local(ctx, 0))
	}},
	"strategy.Variable.LocalShard": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.v.LocalShard(ctx, 0, 0))
	}},
	"strategy.Variable.Ready": {call: func(ctx context.Context, w *tracingWorld) error { return w.v.Ready(ctx) }},
	"eager.Extended.ReadVar": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.e.ReadVar(ctx, w.v))
	}},
	"eager.Component.Local": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.component.Local(ctx))
	}},
	"strategy.Mirrored.Value": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.mirrored.Value(ctx))
	}},
	"strategy.Mirrored.Float64": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.mirrored.Float64(ctx))
	}},
	"strategy.deviceValue.Local": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.value.Local(ctx, 0))
	}},
	"strategy.deviceValue.Ready": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return w.value.Ready(ctx)
	}},
	"strategy.TPUStrategy.LocalResults": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.s.LocalResults(ctx, w.value))
	}},
	"eager.Extended.Group": {call: func(ctx context.Context, w *tracingWorld) error {
		return eager.Of(w.s).Group(ctx,
			[]any{})
	}},
	"eager.Extended.Regroup": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(eager.Of(w.s).Regroup(ctx, []any{1, 1}))
	}},
	"eager.Extended.ValuesFromFunction": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(eager.Of(w.s).ValuesFromFunction(ctx, func(eager.ValueContext) (any, error) {
			return 1,
				nil
		}))
	}},
	"strategy.TPUStrategy.Reduce": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.s.Reduce(ctx, strategy.Sum, w.value))
	}},
	"strategy.TPUStrategy.Gather": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.s.Gather(ctx, w.value, 0))
	}},
	"strategy.TPUStrategy.NewVariable": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.s.NewVariable(ctx, float32(1), strategy.VariableOptions{}))
	}},
	"strategy.TPUStrategy.Mirror": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.s.Mirror(ctx, 1, none))
	}},
	"strategy.TPUStrategy.PerReplica": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.s.PerReplica(ctx, []any{1, 1}, none))
	}},
	"strategy.TPUStrategy.Shutdown": {call: func(ctx context.Context, w *tracingWorld) error { return w.s.Shutdown(ctx) }},
	"strategy.TPUStrategy.SplitBatch": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.s.SplitBatch(ctx, []float32{1, 2}, none, false))
	}},
	"strategy.TPUStrategy.StackBatches": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.s.StackBatches(ctx, []any{[]float32{1, 2}}, none))
	}},
	"feed.CopyToDevices": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(feed.CopyToDevices(ctx, w.s, input.Step{}))
	}},
	"feed.Iterate": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(feed.Iterate(ctx, w.s, w.data))
	}},
	"feed.Iterator.Next": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.iterator.Next(ctx))
	}},
	"strategy.Function.Run": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.function.Run(ctx))
	}},
	"strategy.Function.Lowered": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.function.Lowered(ctx))
	}},
	"strategy.Function.Compiled": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.function.Compiled(ctx))
	}},
	"strategy.CompiledStep.CompileVariant": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.compiled.CompileVariant(ctx, w.compiled.Module))
	}},
	"strategy.Function.Bind": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.function.Bind(ctx))
	}},
	"strategy.Binding.Launch": {call: func(ctx context.Context, w *tracingWorld) error { return w.bound.Launch(ctx) }},
	"nest.Function.Run": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.nested.Run(ctx))
	}},
	"nest.Function.Lowered": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.nested.Lowered(ctx))
	}},
	"nest.Function.Compiled": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.nested.Compiled(ctx))
	}},
	"train.Step.Run": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.train.Run(ctx))
	}},
	"train.Step.NonFinite": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.train.NonFinite(ctx))
	}},
	"train.Step.LossScale": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.train.LossScale(ctx))
	}},
	"train.Step.Metrics": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.train.Metrics(ctx))
	}},
	"train.Step.ResetMetrics": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return w.train.ResetMetrics(ctx)
	}},
	"train.Step.SwapAverages": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return w.train.SwapAverages(ctx)
	}},
	"train.Evaluation.Run": {call: func(ctx context.Context, w *tracingWorld) error { return w.held.Run(ctx) }},
	"train.Evaluation.Results": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.held.Results(ctx))
	}},
	"train.Evaluation.Reset": {call: func(ctx context.Context, w *tracingWorld) error { return w.held.Reset(ctx) }},
	"train.Evaluation.Over": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.held.Over(ctx, func(func([]any, error) bool) {}))
	}},
	"train.Evaluation.Compiled": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.held.Compiled(ctx))
	}},
	"train.Evaluation.Lowered": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.held.Lowered(ctx))
	}},
	"train.Step.ResetNonFinite": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return w.train.ResetNonFinite(ctx)
	}},
	"train.Step.RunSteps": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.train.RunSteps(ctx, []any{}))
	}},
	"train.Step.Lowered": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.train.Lowered(ctx))
	}},
	"train.Step.Compiled": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.train.Compiled(ctx))
	}},
	"train.Step.Bind": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.train.Bind(ctx))
	}},
	"stepfile.Load": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(stepfile.Load(ctx, w.s, &bytes.Buffer{}, nil))
	}},
	"stepfile.LoadEvaluation": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(stepfile.LoadEvaluation(ctx, w.s, &bytes.Buffer{}, nil))
	}},
	"stepfile.Save": {call: func(ctx context.Context, w *tracingWorld) error {
		return stepfile.Save(ctx, &bytes.Buffer{}, nil)
	}},
	"stepfile.LoadTrain": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(stepfile.LoadTrain(ctx, w.s, &bytes.Buffer{}, nil))
	}},
	"strategy.Variables.Pull": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return w.s.Variables(w.store).Pull(ctx)
	}},
	"strategy.Variables.Push": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return w.s.Variables(w.store).Push(ctx)
	}},
	"strategy.TPUStrategy.CheckSame": {call: func(ctx context.Context, w *tracingWorld) error {
		return w.s.CheckSame(ctx,
			"a", "b")
	}},
	"strategy.TPUStrategy.GatherBytes": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.s.GatherBytes(ctx, "a", nil))
	}},
	"strategy.TPUStrategy.Barrier": {call: func(ctx context.Context, w *tracingWorld) error {
		return w.s.Barrier(ctx,
			"a")
	}},
	"strategy.TPUStrategy.BroadcastBytes": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.s.BroadcastBytes(ctx, "a", nil))
	}},
	"strategy.TPUStrategy.AnyProcess": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.s.AnyProcess(ctx, true))
	}},
	"eager.Extended.CallForEachReplica": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.e.CallForEachReplica(ctx, func(*eager.ReplicaContext, ...any) (any, error) {
			return nil,
				nil
		}))
	}},
	"eager.Extended.RunStepsOnIterator": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.e.RunStepsOnIterator(ctx, nil, w.iterator, 1, nil))
	}},
	"eager.MultiStepContext.SetLastStepOutput": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return w.steps.SetLastStepOutput(ctx, "a", 1)
	}},
	"eager.MultiStepContext.SetNonTensorOutput": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return w.steps.SetNonTensorOutput(ctx, "a", 1)
	}},

	"contrib.DistributionStrategy.DistributeDataset": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.d.DistributeDataset(ctx, func() (input.Dataset, error) { return input.Range(3), nil }))
	}},
	"contrib.PerDeviceDataset.MakeOneShotIterator": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.dset.MakeOneShotIterator(ctx))
	}},
	"contrib.Iterator.Initialize": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return w.dit.Initialize(ctx)
	}},
	"contrib.Iterator.GetNext": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.dit.GetNext(ctx))
	}},
	"contrib.DistributionStrategy.Reduce": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.d.Reduce(ctx, "sum", w.dmirrored))
	}},
	"contrib.DistributionStrategy.BatchReduce": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.d.BatchReduce(ctx, "sum", nil))
	}},
	"contrib.DistributionStrategy.Fetch": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.d.Fetch(ctx, w.dmirrored, contrib.FetchOptions{}))
	}},
	"contrib.DistributionStrategy.ColocateVarsWith": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.d.ColocateVarsWith(ctx, w.dv))
	}},
	"contrib.DistributionStrategy.ColocateVarsWithDevices": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.d.ColocateVarsWithDevices(ctx, w.d.WorkerDevices()))
	}},
	"contrib.DistributionStrategy.Group": {call: func(ctx context.Context, w *tracingWorld) error {
		return w.d.Group(ctx,
			w.dmirrored)
	}},
	"contrib.DistributionStrategy.Unwrap": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.d.Unwrap(ctx, w.dmirrored))
	}},
	"contrib.DistributionStrategy.CallForEachTower": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.d.CallForEachTower(ctx, func(*contrib.TowerContext, ...any) (any, error) {
			return nil,
				nil
		}))
	}},
	"contrib.DistributionStrategy.Update": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.d.Update(ctx, w.dv, func(u *contrib.UpdateContext, _ ...any) (any,
			error) {
			return u.Assign([]float32{1, 2})
		}))
	}},
	"contrib.DistributionStrategy.DistributedApply": {call: func(ctx context.Context, w *tracingWorld) error {
		return w.d.DistributedApply(ctx, []contrib.Gradient{{Value: float32(1), Variable: w.dv}}, func(*contrib.UpdateContext,
			...any) (any, error) {
			return nil, nil
		}, nil, nil)
	}},
	"contrib.DistributionStrategy.UpdateNonSlot": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.d.UpdateNonSlot(ctx, w.d.NonSlotDevices(), func(*contrib.UpdateContext, ...any) (any,
			error) {
			return nil, nil
		}))
	}},
	"contrib.DistributionStrategy.PerDevice": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.d.PerDevice(ctx, nil))
	}},
	"contrib.DistributionStrategy.Broadcast": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.d.Broadcast(ctx, 1))
	}},
	"contrib.DistributionStrategy.TowerLocalVarScope": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.d.TowerLocalVarScope(ctx, "sum"))
	}},
	"contrib.DistributionStrategy.GetVariable": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.d.GetVariable(ctx, "x", 1))
	}},
	"contrib.Variable.Read": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.dv.Read(ctx))
	}},
	"contrib.Variable.Assign": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.dv.Assign(ctx, 1))
	}},
	"contrib.Variable.AssignAdd": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.dv.AssignAdd(ctx, 1))
	}},
	"contrib.Variable.AssignSub": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.dv.AssignSub(ctx, 1))
	}},
	"contrib.Variable.Save": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.dv.Save(ctx))
	}},
	"contrib.Variable.Restore": {call: func(ctx context.Context, w *tracingWorld) error {
		return w.dv.Restore(ctx,
			nil)
	}},

	"v1.Strategy.MakeDatasetIterator": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.one.MakeDatasetIterator(ctx, input.Range(4).Batch(2, true)))
	}},
	"v1.Strategy.MakeInputFnIterator": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.one.MakeInputFnIterator(ctx, func(input.Context) (input.Dataset, error) { panic("called") },
			input.PerWorker))
	}},
	"v1.InputIterator.Initialize": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return w.oneIt.Initialize(ctx)
	}},
	"v1.InputIterator.GetNext": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.oneIt.GetNext(ctx))
	}},
	"v1.InputIterator.Next": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.oneIt.Next(ctx))
	}},
	"v1.Strategy.ExperimentalRun": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.one.ExperimentalRun(ctx, nil, nil))
	}},
	"v1.Strategy.ExperimentalRunV2": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(w.one.ExperimentalRunV2(ctx, nil))
	}},

	"feed.New": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(feed.New(ctx, w.s, w.data, feed.Options{}))
	}},
	"feed.FromDataset": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(feed.FromDataset(ctx, w.s, input.Range(4).Batch(2, true), feed.Options{}))
	}},
	"feed.Feed.Next": {call: func(ctx context.Context,
		w *tracingWorld) error {
		return strategytest.Err(w.feed.Next(ctx))
	}},
	"feed.Feed.Args": {call: func(ctx context.Context, w *tracingWorld) error {
		for _, err := range w.feed.Args(ctx) {
			return err
		}
		return nil
	}},
	"feed.Feed.All": {call: func(ctx context.Context, w *tracingWorld) error {
		for _, err := range w.feed.All(ctx) {
			return err
		}
		return nil
	}},
	"fit.Run": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(fit.Run(ctx, w.train, fit.Data{}, fit.Options{}))
	}},
	"fit.LatestSnapshot": {call: func(ctx context.Context, _ *tracingWorld) error {
		return strategytest.Err(fit.LatestSnapshot(ctx, "a run"))
	}},
	"feed.FromTrain": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(feed.FromTrain(ctx, w.s, nil, gomlxdata.Options{}, feed.Options{}))
	}},
	"feed.FromSeq": {call: func(ctx context.Context, w *tracingWorld) error {
		return strategytest.Err(feed.FromSeq(ctx, w.s, nil, input.SeqOptions{}, feed.Options{}))
	}},
}

// tracingNames returns the functions of a package whose first parameter is a context.
func tracingNames(t *testing.T, dir string) (names []string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() || len(fn.Type.Params.List) == 0 {
				continue
			}
			selector, ok := fn.Type.Params.List[0].Type.(*ast.SelectorExpr)
			if !ok || selector.Sel.Name != "Context" || fmt.Sprint(selector.X) != "context" {
				continue
			}
			full := f.Name.Name + "."
			if fn.Recv != nil {
				of := fn.Recv.List[0].Type
				if star, ok := of.(*ast.StarExpr); ok {
					of = star.X
				}
				ident, ok := of.(*ast.Ident)
				if !ok || !ident.IsExported() && ident.Name != "deviceValue" {
					continue
				}
				full += ident.Name + "."
			}
			names = append(names, full+fn.Name.Name)
		}
	}
	require.NotEmpty(t, names)
	return names
}
