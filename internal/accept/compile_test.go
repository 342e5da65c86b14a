package accept

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// raws are the programs in StableHLO that the parts run on n devices, but for the dtypes that a
// platform may lack.
func raws(n int, platform string) (all []rawProgram) {
	all = append(all, allDevicesProgram(n))
	for _, g := range deviceGroupings(n) {
		for _, dtype := range []pjrt.DType{pjrt.S32, pjrt.F32} {
			all = append(all, collectiveProgram(g, dtype, collectiveKinds))
		}
	}
	for _, t := range requiredDTypes {
		all = append(all, dtypeProgram(t, n))
	}
	sz := workloadSizesFor(platform)
	all = append(all, memoryProgram(sz), matmulProgram(sz))
	if n > 1 {
		for _, bytes := range sz.links {
			all = append(all, linkProgram(n, bytes))
		}
	}
	return all
}

// compilable is a function of a strategy, or a training step.
type compilable interface {
	Compiled(ctx context.Context, args ...any) (*strategy.CompiledStep, error)
}

// Compile compiles, for a slice that is not at hand, each program that the parts run there, and
// calls done after each. optional says of a dtype that the platform may lack; its error is no
// failure. The error joins those of all programs.
func Compile(ctx context.Context, slice *system.Slice, done func(name string, optional bool, err error)) error {
	var failures []error
	tell := func(name string, optional bool, err error) {
		if err != nil && !optional {
			failures = append(failures, fmt.Errorf("%s: %w", name, err))
		}
		if done != nil {
			done(name, optional, err)
		}
	}
	ids := sortedIDs(slice.Topology().DeviceIDs())
	n := len(ids)
	one := func(p rawProgram) error {
		x, err := slice.Compile(ctx, pjrt.Program{Code: p.stablehlo(n), Trusted: true}, rawCompileOptions(ids))
		if err != nil {
			return err
		}
		return x.Close()
	}
	for _, p := range raws(n, "tpu") {
		tell(p.name, false, one(p))
	}
	for _, t := range optionalDTypes {
		tell("dtype "+t.String(), true, one(dtypeProgram(t, n)))
	}
	with := func(name string, opts strategy.Options, args []any, make func(s *strategy.TPUStrategy) (compilable, error)) {
		tell(name, false, compileOn(ctx, slice, opts, args, make))
	}
	for _, c := range slices.Concat(collectiveCases(n), splitCases(n), unevenBatchCases(n)) {
		with(c.name, c.strategy, c.args, func(s *strategy.TPUStrategy) (compilable, error) { return c.function(s), nil })
	}
	with("masked batch", strategy.Options{}, []any{shapes.Make(dtypes.Float32, 2*n), shapes.Make(dtypes.Bool, 2*n)},
		func(s *strategy.TPUStrategy) (compilable, error) {
			return maskedFunction(s, strategy.FunctionOptions{SplitBatch: true}), nil
		})
	with("donation", strategy.Options{}, nil, func(s *strategy.TPUStrategy) (compilable, error) {
		return donatingFunction(s, workloadSizesFor("tpu")), nil
	})
	for _, own := range []bool{false, true} {
		with(fmt.Sprintf("random own=%t", own), strategy.Options{}, nil, func(s *strategy.TPUStrategy) (compilable,
			error) {
			return randomFunction(s, own), nil
		})
	}
	for _, c := range trainCases(n, slice.Topology().NumSlices()) {
		tell(c.name, false, compileTraining(ctx, slice, c))
	}
	return errors.Join(failures...)
}

func compileTraining(ctx context.Context, slice *system.Slice, c trainCase) error {
	x, y := trainingBatch(0)
	return compileOn(ctx, slice, c.strategy, []any{x, y}, func(s *strategy.TPUStrategy) (compilable,
		error) {
		return trainingStep(s, c.losses)
	})
}

func compileOn(ctx context.Context, slice *system.Slice, opts strategy.Options, args []any,
	make func(s *strategy.TPUStrategy) (compilable, error)) (err error) {
	s, err := strategy.NewAheadOfTime(slice, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	f, err := make(s)
	if err != nil {
		return err
	}
	_, err = f.Compiled(ctx, args...)
	return err
}
