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

// Options configure [Load]. With the zero value, every trainable variable of the model must be in
// the files.
type Options struct {
	// OptionalVariables contains regular expressions for complete paths of trainable variables that
	// may be missing in the files, such as the variables of a new head. They keep their values.
	OptionalVariables []string
	// DType is the dtype of variables that the store does not have yet; the default is Float32.
	DType dtypes.DType
}

// Report describes the result of [Load] in this process.
type Report struct {
	// OnDevices are the paths of the variables whose values are on the devices. InStore are the
	// paths of the variables whose values are read by the first step that uses them.
	OnDevices, InStore []string
	// DeviceBytes is the number of bytes of the OnDevices variables on this process's devices.
	DeviceBytes int
	// StagedBytes is the peak host memory of the transfer to the devices.
	StagedBytes int
	// BytesRead is the number of bytes that were read from the files, without the headers and
	// without the values of the InStore variables.
	BytesRead int64
	// Elapsed is the duration of the load.
	Elapsed time.Duration
}

// String returns the report in one line.
func (r *Report) String() string {
	const mb = 1e6
	return fmt.Sprintf(
		"%d variables on the devices (%.1f MB), %d in the store; %.1f MB read in %v; at most %.1f MB staged",
		len(r.OnDevices), float64(r.DeviceBytes)/mb, len(r.InStore), float64(r.BytesRead)/mb, r.Elapsed.Round(
			time.Millisecond), float64(r.StagedBytes)/mb)
}

// Load sets the variables of a store to the tensors of files, by rules. It changes nothing unless each
// tensor is used or ignored by a rule and each trainable variable is filled.
//
// Call Load after a step was compiled ([train.Step.Compiled]): the variables of the model are known
// then, and their values are copied to the devices immediately. If no step was compiled, Load creates
// variables in the store with the shapes of the files. Their values are read when the first step runs,
// so f must stay open until then. Load cannot check in this case that every variable is filled.
//
// Each process reads only the ranges of the files that its devices store, and copies one range to the
// devices while it reads the next. The host memory for the transfer is a sixteenth of the bytes on the
// process's devices, or the largest single shard. If devices share the host's memory, as with the CPU
// plugin, shards of at least 256 kB that one device stores are read directly into their final buffers.
//
// Variables without a value receive their values together, or not at all if there is an error.
// Variables with a value are replaced one after the other, and the old value stays until the new value
// is complete. All processes must call Load, each for its own devices.
//
// Errors are [*weights.PlanError], errors of the rules and files, [*LoadError], which lists the changed
// variables, and [strategy.ErrContext] if Load is called while a step is traced.
func Load(ctx context.Context, s *strategy.TPUStrategy, store *model.Store, f *weights.File, rules weights.Rules,
	opts Options) (*Report, error) {
	start, bytesBefore := time.Now(), f.BytesRead()
	plan, err := newPlan(s, store, f.Tensors(), rules, opts)
	if err != nil {
		return nil, err
	}
	var values []variableValue
	for _, v := range plan.Variables() {
		values = append(values, variableValue{v.Path, &lazyValue{plan, f, v}})
	}
	r, err := setVariables(ctx, s, store, values)
	if err != nil {
		return nil, err
	}
	r.BytesRead, r.Elapsed = f.BytesRead()-bytesBefore, time.Since(start)
	return r, nil
}

func newPlan(s *strategy.TPUStrategy, store *model.Store, tensors []weights.Tensor, rules weights.Rules,
	opts Options) (*weights.Plan, error) {
	var keep []*regexp.Regexp
	for _, text := range opts.OptionalVariables {
		p, err := regexp.Compile(`^(?:` + text + `)$`)
		if err != nil {
			return nil, &errkind.Fault{Op: "pretrained: load", Subject: "option OptionalVariables",
				Reason: fmt.Sprintf("%q is no regular expression", text), Err: err, Class: errkind.ValueError}
		}
		keep = append(keep, p)
	}
	traced := len(s.Variables(store).All()) > 0
	var variables []weights.Variable
	for v := range store.IterVariables() {
		shape := v.Shape()
		// A variable that has a value before the first trace was set by the caller.
		keeps := !v.Trainable || !traced && v.HasValue()
		for _, p := range keep {
			keeps = keeps || p.MatchString(v.Path())
		}
		variables = append(variables, weights.Variable{Path: v.Path(), DType: shape.DType, Shape: shape.Dimensions,
			Optional: keeps})
	}
	po := weights.PlanOptions{}
	if !traced {
		po.Create = cmp.Or(opts.DType, dtypes.Float32)
	}
	return weights.NewPlan(tensors, variables, rules, po)
}

// lazyValue is a variable's value that is read from files on demand. It implements lazytensor.Reader.
type lazyValue struct {
	plan     *weights.Plan
	file     *weights.File
	variable weights.Variable
}

func (p *lazyValue) Shape() shapes.Shape { return shapes.Make(p.variable.DType, p.variable.Shape...) }

func (p *lazyValue) ReadPart(ctx context.Context, start, size []int, dst []byte) error {
	return p.plan.Read(ctx, p.file, p.variable.Path, start, size, dst)
}

// ReadCells reads a range of the variable that is divided into equal cells, such as the shards of
// several devices; see [weights.Plan.ReadCells].
func (p *lazyValue) ReadCells(ctx context.Context, start, size, cells []int, dst []byte) error {
	return p.plan.ReadCells(ctx, p.file, p.variable.Path, start, size, cells, dst)
}
