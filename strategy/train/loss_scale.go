package train

import (
	"context"
	"errors"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// LossScaling is the state of a dynamic loss scale.
type LossScaling struct {
	// Scale is the factor by which the next step multiplies its loss.
	Scale float64
	// Good is the number of consecutive steps with finite gradients since the scale last changed.
	Good int64
	// Grown is the number of times that the scale was increased. Skipped is the number of steps
	// whose update was not applied because gradients overflowed with the scale. It does not include
	// steps that [Step.NonFinite] counts as skipped.
	Grown, Skipped int64
}

// LossScale returns the state of the step's dynamic loss scale, which follows TensorFlow's
// tf.keras.mixed_precision.LossScaleOptimizer; see [precision.LossScale]. It waits for running
// steps and copies 28 bytes. For a step without a dynamic loss scale the error matches
// errors.ErrUnsupported. The state consists of two variables of the store below "/loss_scale/" and
// the step's name. They are equal on all replicas and are saved with the store.
//
// If a gradient, averaged over all replicas, is not finite, the step's update is not applied and
// the scale is divided. All variables keep their values, as with [NonFinite]. All replicas and
// processes make the same decision. With Options.NonFinite, a step whose gradients overflow because
// of the scale does not count as non-finite and does not stop training. The step only counts as
// non-finite if the unscaled loss is not finite, or if the scale was already 1.
func (t *Step) LossScale(ctx context.Context) (LossScaling, error) {
	if err := strategy.RefuseTracing(ctx, "LossScale", fault.InsteadOfRunning); err != nil {
		return LossScaling{}, err
	}
	m := engine.Internal(t.function)
	if err := m.CheckOpen(); err != nil {
		return LossScaling{}, err
	}
	scale, known := m.LookupVariable(scalePath(t.name))
	counts, _ := m.LookupVariable(scaleCountsPath(t.name))
	switch {
	case t.scaler == nil && (m.SavedStep() == nil || !known):
		return LossScaling{}, &errkind.Fault{Op: "train: " + t.name, Reason: "its loss has no dynamic scale",
			Hint:  "set Options.Precision to a policy with one, such as precision.MixedFloat16",
			Class: errkind.NotImplementedError, Match: errors.ErrUnsupported}
	case !known:
		return LossScaling{Scale: t.scaler.Initial}, nil // no step was traced
	}
	s, err := readLocal[float32](ctx, t.function, scale)
	if err != nil {
		return LossScaling{}, err
	}
	n, err := readLocal[int64](ctx, t.function, counts)
	if err != nil {
		return LossScaling{}, err
	}
	return LossScaling{Scale: float64(s[0]), Good: n[scaleGood], Grown: n[scaleGrown], Skipped: n[scaleSkipped]}, nil
}

// Elements of the variable with the counts.
const (
	scaleGood = iota
	scaleGrown
	scaleSkipped
	scaleElements
)

func scalePath(step string) string       { return model.JoinPath("/loss_scale", step, "scale") }
func scaleCountsPath(step string) string { return model.JoinPath("/loss_scale", step, "counts") }

// scaler multiplies the loss of a step and divides its gradients.
type scaler struct {
	precision.LossScale
	name string
}

// newScaler returns the scaler of the step with the given name, or nil if the policy has no loss scale.
func newScaler(policy precision.Policy, name string) *scaler {
	if policy.LossScale == (precision.LossScale{}) {
		return nil
	}
	return &scaler{policy.LossScale.WithDefaults(), name}
}

// stepScaler has the variables and nodes of a scaler during one trace of the step.
type stepScaler struct {
	*scaler
	factor *graph.Node // the scale as a float32 scalar
	// scale and counts are the variables of a dynamic scale, nil for a fixed scale.
	scale, counts *model.Variable
}

// readScale reads the scale from its variable. If the stored scale is not finite or below 1, as in
// a store filled with zeros, readScale uses the initial scale.
func (s *scaler) readScale(p *stepBuilder) {
	p.scaling = &stepScaler{scaler: s}
	initial := graph.Const(p.rc.Graph(), float32(s.Initial))
	p.scaling.factor = initial
	if s.Dynamic() {
		store := p.rc.Scope().Store()
		p.scaling.scale = store.VariableWithValue(scalePath(s.name), float32(s.Initial)).SetTrainable(false)
		p.scaling.counts = store.VariableWithValue(scaleCountsPath(s.name),
			make([]int64, scaleElements)).SetTrainable(false)
		held := p.scaling.scale.NodeValue(p.rc.Graph())
		one := graph.Const(p.rc.Graph(), float32(1))
		factor := graph.Where(graph.LogicalAnd(isFinite(held), graph.GreaterOrEqual(held, one)), held, initial)
		p.scaling.factor = graph.StopGradient(factor) // loops over microbatches read it
	}
}

// scaleLoss multiplies the loss by the scale. It must run before the gradients are computed.
func (s *scaler) scaleLoss(p *stepBuilder) {
	if p.scaling == nil {
		s.readScale(p)
	}
	p.scaled = graph.Mul(p.loss, graph.ConvertDType(p.scaling.factor, p.loss.DType()))
}

// unscaleGradients divides the gradients by the scale, in at least float32.
func (s *scaler) unscaleGradients(p *stepBuilder) {
	reciprocal := graph.Reciprocal(p.scaling.factor)
	for i, gradient := range p.gradients {
		dtype := gradient.DType()
		if dtype.IsHalfPrecision() {
			gradient = graph.ConvertDType(gradient, dtypes.Float32)
		}
		p.gradients[i] = graph.ConvertDType(graph.Mul(gradient, graph.ConvertDType(reciprocal, gradient.DType())),
			dtype)
	}
}

// overflow records whether gradients overflowed in a step with a dynamic loss scale.
type overflow struct {
	*stepScaler
	// any is a bool scalar that is true if any gradient is not finite. scaled is true if the step's
	// update is not applied because the scale was too large.
	any, scaled *graph.Node
}

// adjustScale returns a stage that detects overflows of the gradients and adjusts the scale. If
// guarded is true, guard.decideUpdate must run later to decide whether the step's update is
// applied. Otherwise this stage decides.
func (s *scaler) adjustScale(guarded bool) stage {
	return func(p *stepBuilder) {
		_, gradient, past := p.findNonFinite()
		o := &overflow{stepScaler: p.scaling, any: graph.NotEqual(gradient, past)}
		o.scaled, p.overflow = o.any, o
		if guarded {
			large := graph.GreaterThan(o.factor, graph.Const(p.rc.Graph(), float32(1)))
			o.scaled = graph.LogicalAnd(o.any, graph.LogicalAnd(isFinite(p.meanLoss()), large))
			return
		}
		p.common.Applied, p.common.Counters = graph.LogicalNot(o.any), o.updateScale(p, nil)
	}
}

// updateScale updates the scale and its counts after a step. If runs is not nil, it is a bool
// scalar, and the update only takes effect if runs is true. updateScale returns the variables that
// it updated.
func (o *overflow) updateScale(p *stepBuilder, runs *graph.Node) []*model.Variable {
	if o == nil {
		return nil
	}
	in := p.rc.Graph()
	old := o.counts.NodeValue(in)
	number32 := func(x float64) *graph.Node { return graph.Const(in, float32(x)) }

	larger := graph.Mul(o.factor, number32(o.Factor))
	good := graph.Add(elementAt(old, scaleGood), intConstant(in, 1))
	grows := graph.LogicalAnd(graph.GreaterOrEqual(good, intConstant(in, o.Interval)), graph.LogicalNot(o.any))
	grows = graph.LogicalAnd(grows, isFinite(larger))
	full := graph.LogicalOr(o.any, graph.GreaterOrEqual(good, intConstant(in, o.Interval)))
	smaller := graph.Max(graph.Div(o.factor, number32(o.Factor)), number32(1))

	scale := graph.Where(o.any, smaller, graph.Where(grows, larger, o.factor))
	counts := graph.Stack([]*graph.Node{
		graph.Where(full, intConstant(in, 0), good), graph.Add(elementAt(old, scaleGrown), boolToInt64(grows)),
		graph.Add(elementAt(old, scaleSkipped), boolToInt64(o.scaled)),
	}, 0)
	if runs != nil {
		scale, counts = graph.Where(runs, scale, o.factor), graph.Where(runs, counts, old)
	}
	o.scale.SetNodeValue(scale)
	o.counts.SetNodeValue(counts)
	return []*model.Variable{o.scale, o.counts}
}
