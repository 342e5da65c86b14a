package strategy

import (
	"fmt"
	"time"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/report/phase"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Compilation describes a compilation of a step function that is in progress.
type Compilation struct {
	Name                     string
	TextBytes                int // size of the step's StableHLO text
	Replicas, LogicalDevices int // LogicalDevices is per replica
	Elapsed                  time.Duration
}

func (c Compilation) String() string {
	size := fmt.Sprintf("%.1f kB", float64(c.TextBytes)/1e3)
	if c.TextBytes >= 1e6 {
		size = fmt.Sprintf("%.1f MB", float64(c.TextBytes)/1e6)
	}
	return fmt.Sprintf("compiling %s for %d x %d devices: running for %s, %s of program",
		c.Name, c.Replicas, c.LogicalDevices, c.Elapsed.Round(time.Second), size)
}

// progressCallback returns a function that reports long compilations to the user, or nil if the
// options request no reports.
func (o *Options) progressCallback() func(engine.Compilation) {
	switch {
	case o.Compiling != nil:
		return func(c engine.Compilation) { o.Compiling(Compilation(c)) }
	case o.Logger != nil:
		return func(c engine.Compilation) {
			o.Logger.Info("strategy: a compilation is still running", "step", c.Name, "elapsed", c.Elapsed.Round(time.Second),
				"text_bytes", c.TextBytes, "replicas", c.Replicas, "logical_devices", c.LogicalDevices)
		}
	}
	return nil
}

// phaseReporter reports the phases of building one program to [Options].Phases.
type phaseReporter struct {
	report  func(phase.Phase)
	current phase.Phase
}

// newPhaseReporter returns nil if the options request no reports of phases. All methods of
// phaseReporter accept a nil receiver.
func (f *Function) newPhaseReporter() *phaseReporter {
	s := f.strategy
	if s.opts.Phases == nil || f.opts.own {
		return nil
	}
	return &phaseReporter{s.opts.Phases, phase.Phase{Name: f.opts.Name, Target: s.sliceInfo().Name,
		Replicas: s.replicas, LogicalDevices: s.logicalDevices}}
}

func (p *phaseReporter) reportStage(stage phase.Stage) {
	if p != nil {
		p.current.Stage = stage
		p.report(p.current)
	}
}

func (p *phaseReporter) reportCompiling(textBytes int) {
	if p != nil {
		p.current.TextBytes = textBytes
		p.reportStage(phase.Compiling)
	}
}

func (p *phaseReporter) reportDone(err error) {
	if p != nil {
		p.current.Err = err
		p.reportStage(phase.Done)
	}
}

// NewAheadOfTime returns a strategy that compiles steps for a slice whose devices need not be
// available. Steps are traced, lowered and compiled as on a live system. A call that needs the
// devices, such as [Function.Run], returns [ErrAheadOfTime]. Variables and arguments have no
// contents, so a model may be larger than the memory of this host. [Function.Compiled] and
// train.Step.Compiled return compiled steps, or a [*MemoryError] for a step that does not fit into
// the memory of a device. The caller keeps ownership of the slice and must close the strategy
// before it. NewAheadOfTime returns the same errors as [New].
func NewAheadOfTime(slice *system.Slice, opts Options) (*TPUStrategy, error) {
	if slice == nil {
		return nil, fault.New(errkind.ValueError, "new ahead of time", "see the error of system.Describe",
			"there is no slice: it is nil")
	}
	if err := slice.Check(); err != nil {
		return nil, fault.Wrap("new ahead of time", err, "")
	}
	s, err := newStrategy(slice.Topology(), opts)
	if err != nil {
		return nil, err
	}
	s.slice = slice
	s.runtime = engine.NewDescribedRuntime(slice, s.opts.runtimeOptions(s.assignment))
	return s, nil
}

// Slice returns the slice that was passed to [NewAheadOfTime], or nil for a strategy of [New].
func (s *TPUStrategy) Slice() *system.Slice { return s.slice }

// newAbstractValue returns a value without contents. If split is true, shape is the shape of a
// global batch, which is divided over the replicas.
func (b batchSplitter) newAbstractValue(shape shapes.Shape, split bool) (Value, error) {
	dims, _, err := b.replicaLayout(shape, split)
	if err != nil {
		return nil, err
	}
	return b.newValue(split, shape.DType, dims, b.annotation, nil)
}

// replicaLayout returns the dimensions and the layout of one replica's tensor. If split is true,
// shape is the shape of a global batch, which is divided over the replicas.
func (b batchSplitter) replicaLayout(shape shapes.Shape, split bool) (dims []int, l *engine.Layout, err error) {
	if !shape.Ok() {
		return nil, nil, fault.New(errkind.ValueError, "shape of an argument",
			"give the shape of the whole batch, of known dimensions", "%s is no shape of a tensor", shape)
	}
	dims = shape.Dimensions
	if split {
		if dims, err = replicaShareShape(dims, b.numShares()); err != nil {
			return nil, nil, err
		}
	}
	l, err = b.layout(shape.DType, dims, b.annotation, split)
	return dims, l, err
}
