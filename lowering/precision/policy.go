package precision

import (
	"cmp"
	"fmt"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Policy is a set of float dtypes for storing variables, computing and accumulating. It corresponds
// to TensorFlow's tf.keras.mixed_precision.Policy. Zero fields have defaults. The zero Policy
// changes nothing. Policies can be compared with ==.
type Policy struct {
	// Parameters is the dtype of the variables in the store, on the devices and in checkpoints, of
	// their gradients, and of the optimizer state. The default is Float32.
	Parameters dtypes.DType
	// Compute is the dtype of float arguments and variables within the model, and therefore of its
	// activations. The default is Parameters.
	Compute dtypes.DType
	// Output is the dtype of the results of a forward part, such as the loss, and of the function
	// [Output]. The default is Parameters.
	Output dtypes.DType
	// Accumulate is the dtype in which reductions, windows, cumulative sums and scatters accumulate
	// half-precision numbers. The default is Float32, or Compute if it is wider. Dot products
	// always accumulate in float32.
	Accumulate dtypes.DType
	// Partial is the dtype in which several logical devices sum their partial results of a product.
	// The default is Compute. A wider dtype increases communication.
	Partial dtypes.DType
	// Reduce is the dtype in which a training step sums gradients over the replicas. The default is
	// the dtype of the gradient, Parameters. BFloat16 sends half as many bytes as Float32.
	Reduce dtypes.DType
	// LossScale is the loss scale of a training step, which float16 needs. By default the loss is
	// not scaled. It has no effect on a forward part without gradients.
	LossScale LossScale
}

// The policies with Keras's names float32, mixed_bfloat16 and mixed_float16.
var (
	// Float32 stores variables and computes in float32. Arguments of other float dtypes are
	// converted.
	Float32 = Policy{Parameters: dtypes.Float32}
	// MixedBFloat16 stores variables in float32 and computes in bfloat16.
	MixedBFloat16 = Policy{Parameters: dtypes.Float32, Compute: dtypes.BFloat16}
	// MixedFloat16 stores variables in float32, computes in float16 and scales the loss. The range
	// of float16 is small: it ends at 65,504, and values below 6e-5 lose precision. Without a loss
	// scale, small gradients would become zero.
	MixedFloat16 = Policy{Parameters: dtypes.Float32, Compute: dtypes.Float16, LossScale: DynamicLossScale}
)

// WithDefaults returns the policy with zero fields replaced by their defaults. The zero Policy is
// returned unchanged.
func (p Policy) WithDefaults() Policy {
	if p == (Policy{}) {
		return p
	}
	p.Parameters = cmp.Or(p.Parameters, dtypes.Float32)
	p.Compute, p.Output = cmp.Or(p.Compute, p.Parameters), cmp.Or(p.Output, p.Parameters)
	accumulate := dtypes.Float32
	if p.Compute == dtypes.Float64 {
		accumulate = dtypes.Float64
	}
	p.Accumulate, p.Partial = cmp.Or(p.Accumulate, accumulate), cmp.Or(p.Partial, p.Compute)
	p.LossScale = p.LossScale.WithDefaults()
	return p
}

// Validate returns an [*errkind.Fault] of kind ValueError for the first invalid field.
func (p Policy) Validate() error {
	if p == (Policy{}) {
		return nil
	}
	f := p.WithDefaults()
	for _, field := range []struct {
		name  string
		dtype dtypes.DType
	}{
		{"Parameters", f.Parameters}, {"Compute", f.Compute}, {"Output", f.Output},
		{"Accumulate", f.Accumulate}, {"Partial", f.Partial}, {"Reduce", f.Reduce},
	} {
		if field.dtype != dtypes.InvalidDType && !isModelFloat(field.dtype) {
			return invalidError("Policy."+field.name, "use Float32, BFloat16, Float16 or Float64",
				"%s is not a dtype that a model can be computed in", field.dtype)
		}
	}
	for _, field := range []struct {
		name  string
		dtype dtypes.DType
	}{{"Accumulate", f.Accumulate}, {"Partial", f.Partial}} {
		if field.dtype != f.Compute && !(field.dtype.Bits() > f.Compute.Bits()) {
			return invalidError("Policy."+field.name, fmt.Sprintf("use %s or a wider dtype", f.Compute),
				"sums in %s do not hold the terms, which are %s", field.dtype, f.Compute)
		}
	}
	return p.LossScale.Validate()
}

// String returns the dtypes of the fields, such as "parameters Float32, compute BFloat16, ...".
func (p Policy) String() string {
	if p == (Policy{}) {
		return "no policy"
	}
	p = p.WithDefaults()
	text := fmt.Sprintf("parameters %s, compute %s, output %s, accumulate %s, partial %s", p.Parameters, p.Compute,
		p.Output, p.Accumulate, p.Partial)
	if p.Reduce != dtypes.InvalidDType {
		text += fmt.Sprintf(", reduce %s", p.Reduce)
	}
	if p.LossScale != (LossScale{}) {
		text += ", loss scale " + p.LossScale.String()
	}
	return text
}

// isModelFloat reports whether models can compute in d. Narrower floats have too few values, and
// complex numbers are not supported.
func isModelFloat(d dtypes.DType) bool {
	return d == dtypes.Float64 || d == dtypes.Float32 || d == dtypes.BFloat16 || d == dtypes.Float16
}

func invalidError(subject, hint, reason string, args ...any) *errkind.Fault {
	return &errkind.Fault{Op: "precision:", Subject: subject, Reason: fmt.Sprintf(reason, args...), Hint: hint,
		Class: errkind.ValueError}
}
