package pretrained

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lm/weights"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Options say what of a load may differ. The zero value asks for each trained variable of the
// model.
type Options struct {
	// Keep are regular expressions for whole paths of trained variables that may keep the values
	// they have, such as those of a new head.
	Keep []string
	// DType is the dtype of variables that the store does not have yet, Float32 if it is not set.
	DType dtypes.DType
}

// Report says what a load did in this process.
type Report struct {
	// OnDevices are the paths of the variables that have their values on the devices, and InStore
	// those whose values wait in the store for the first step that uses them.
	OnDevices, InStore []string
	// DeviceBytes is what this process's devices hold of the variables that are on the devices.
	DeviceBytes int
	// StagedBytes is the most that the host held at a time on the way to them.
	StagedBytes int
	// BytesRead is what was read of the files, without the headers. What waits in the store is read
	// later.
	BytesRead int64
	// Elapsed is the time that it took.
	Elapsed time.Duration
}

// String is the report as one line.
func (r *Report) String() string {
	const mb = 1e6
	return fmt.Sprintf("%d variables on the devices (%.1f MB), %d in the store; %.1f MB read in %v; at most %.1f MB on the way",
		len(r.OnDevices), float64(r.DeviceBytes)/mb, len(r.InStore), float64(r.BytesRead)/mb, r.Elapsed.Round(time.Millisecond), float64(r.StagedBytes)/mb)
}

// Load gives the variables of a store the tensors of files, by rules. Nothing changes unless
// everything fits: each tensor is used or ignored by name, and each trained variable is filled.
//
// Call it after a step was compiled ([train.Step.Compiled]): then the variables of the model are
// known and checked, and get their values on the devices at once. Before, the store gets variables
// in the shapes that the files give, whose values are read when the first step runs: keep f open
// until then. What variables the model makes besides is not known then.
//
// A process reads the ranges of the files that its devices hold, each range once, and one while the
// one before it is copied to the devices. The host holds a sixteenth of its devices' bytes on the
// way, or a single part that is larger. Where devices have the host's memory, as the CPU plugin's,
// parts of 256 kB and more that one device holds are read to where they stay. Variables that have no
// value yet get theirs all together, or none after an error; of the others each is replaced in turn,
// beside its old value. All processes call Load, each for its own devices.
//
// Errors: [*weights.PlanError], those of rules and files, [*LoadError], which says what has
// changed, [strategy.ErrContext] where a step is traced.
func Load(ctx context.Context, s *strategy.TPUStrategy, store *model.Store, f *weights.File, rules weights.Rules, opts Options) (*Report, error) {
	start, before := time.Now(), f.BytesRead()
	plan, err := planOf(s, store, f.Tensors(), rules, opts)
	if err != nil {
		return nil, err
	}
	var values []value
	for _, v := range plan.Variables() {
		values = append(values, value{v.Path, &parts{plan, f, v}})
	}
	r, err := give(ctx, s, store, values)
	if err != nil {
		return nil, err
	}
	r.BytesRead, r.Elapsed = f.BytesRead()-before, time.Since(start)
	return r, nil
}

// planOf matches tensors with the variables of a store.
func planOf(s *strategy.TPUStrategy, store *model.Store, tensors []weights.Tensor, rules weights.Rules, opts Options) (*weights.Plan, error) {
	var keep []*regexp.Regexp
	for _, text := range opts.Keep {
		p, err := regexp.Compile(`^(?:` + text + `)$`)
		if err != nil {
			return nil, &errkind.Fault{Op: "pretrained: load", Subject: "option Keep", Reason: fmt.Sprintf("%q is no pattern", text), Err: err, Class: errkind.ValueError}
		}
		keep = append(keep, p)
	}
	traced := len(s.Variables(store).All()) > 0
	var variables []weights.Variable
	for v := range store.IterVariables() {
		shape := v.Shape()
		// Before a step was traced, what has a value got it from the caller.
		keeps := !v.Trainable || !traced && v.HasValue()
		for _, p := range keep {
			keeps = keeps || p.MatchString(v.Path())
		}
		variables = append(variables, weights.Variable{Path: v.Path(), DType: shape.DType, Shape: shape.Dimensions, Keeps: keeps})
	}
	po := weights.PlanOptions{}
	if !traced {
		po.Create = cmp.Or(opts.DType, dtypes.Float32)
	}
	return weights.NewPlan(tensors, variables, rules, po)
}

// parts is a variable's value in files.
type parts struct {
	plan *weights.Plan
	file *weights.File
	of   weights.Variable
}

// Shape implements lazy.Parts.
func (p *parts) Shape() shapes.Shape { return shapes.Make(p.of.DType, p.of.Shape...) }

// ReadPart implements lazy.Parts.
func (p *parts) ReadPart(ctx context.Context, start, size []int, into []byte) error {
	return p.plan.Read(ctx, p.file, p.of.Path, start, size, into)
}

// ReadCells reads a box in cells; see [weights.Plan.ReadCells].
func (p *parts) ReadCells(ctx context.Context, start, size, cells []int, into []byte) error {
	return p.plan.ReadCells(ctx, p.file, p.of.Path, start, size, cells, into)
}
