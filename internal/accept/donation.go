package accept

import (
	"context"
	"errors"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func (sz workloadSizes) donatedShape() shapes.Shape { return shapes.Make(dtypes.Float32, sz.donated/4) }

// donatingFunction returns a function that donates the buffer of a variable and adds 1 to the
// variable.
func donatingFunction(s *strategy.TPUStrategy, sz workloadSizes) *strategy.Function {
	store := model.NewStore()
	store.VariableWithValue("/held", tensors.FromShape(sz.donatedShape()))
	return s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		v := rc.Scope().VariableWithValue("held", tensors.FromShape(sz.donatedShape()))
		next := graph.AddScalar(v.NodeValue(rc.Graph()), 1)
		v.SetNodeValue(next)
		return []*graph.Node{graph.ReduceMax(next)}
	}, strategy.FunctionOptions{Name: "accept donation", Store: store})
}

// checkDonation updates a donated variable ten times. It checks that the program reuses the
// variable's memory and, if the allocator reports it, that the memory in use does not grow.
func checkDonation(ctx context.Context, w *partRun) (err error) {
	s, err := w.newStrategy(strategy.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	sz := w.dataSizes()
	f := donatingFunction(s, sz)
	compiled, err := f.Compiled(ctx)
	if err != nil {
		return err
	}
	if compiled.Program == nil {
		w.addFact("program", "its runtime does not show it")
	} else {
		w.checkAliasing(compiled.Program, sz)
	}
	var before, peak int64
	for i := range 10 {
		w.setActivity("update %d", i)
		err := w.runOnReplicas(ctx, s, f, nil, func(_ int, got []*tensors.Tensor) error {
			return w.compareTensor("the variable's maximum", got[0], []float32{float32(i + 1)})
		})
		if err != nil {
			return err
		}
		device, _ := w.system().Device(s.LocalDevices()[0])
		if device == nil {
			continue
		}
		stats, err := device.MemoryStats()
		if err != nil || stats.BytesInUse < 0 {
			continue
		}
		if i == 0 {
			before, peak = stats.BytesInUse, stats.PeakBytesInUse
		}
		if i == 9 {
			w.addFact("allocator", "%d bytes in use after the first update and %d after the tenth; at most %d and %d", before,
				stats.BytesInUse, peak, stats.PeakBytesInUse)
			if stats.BytesInUse > before+int64(sz.donated)/2 {
				w.addFailure("%d bytes are in use after ten updates, and %d were after the first", stats.BytesInUse, before)
			}
			if peak > 0 && stats.PeakBytesInUse > peak+int64(sz.donated)/2 {
				w.addFailure("at most %d bytes were in use, and %d until the first update", stats.PeakBytesInUse, peak)
			}
		}
	}
	return nil
}

// checkAliasing records a failure if the program reuses less memory than was donated.
func (w *partRun) checkAliasing(program *pjrt.Executable, sz workloadSizes) {
	switch memory, err := program.MemoryStats(); {
	case err != nil:
		w.addFinding("the program does not say what memory it takes: %v", err)
	case memory.Alias < int64(sz.donated):
		w.addFailure("results take the memory of %d bytes of arguments, and %d are donated", memory.Alias, sz.donated)
	default:
		w.addFact("program", "arguments %d bytes, results %d, of which in the arguments' memory %d, temporary %d",
			memory.Arguments, memory.Outputs, memory.Alias, memory.Temp)
	}
}
