package precision

import (
	"cmp"
	"fmt"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Policy says in which dtypes a model keeps its variables, computes, and adds up: TensorFlow's
// tf.keras.mixed_precision.Policy. All are floats. A field that is zero has the default that its
// comment names. The zero Policy asks for nothing: all is as the model's code says. Policies are
// values and compare with ==.
type Policy struct {
	// Parameters is the dtype of the variables in the store, on the devices and in checkpoints, and
	// of their gradients and what the optimizer makes of them; Float32 if zero.
	Parameters dtypes.DType
	// Compute is the dtype of the float arguments and of the variables as the model sees them, and
	// so of its activations; Parameters if zero.
	Compute dtypes.DType
	// Output is the dtype of the results of a forward part, such as the loss, and of what [Output]
	// gives; Parameters if zero.
	Output dtypes.DType
	// Accumulate is the dtype in which elements of half precision are added up by reductions,
	// windows, running sums and scatters; Float32 if zero, or Compute if that is wider. The products
	// of a dot product are added up in float32 whatever it is.
	Accumulate dtypes.DType
	// Partial is the dtype of a product's parts on several logical devices, which these add up;
	// Compute if zero. A wider one costs more bytes on the interconnect.
	Partial dtypes.DType
	// Reduce is the dtype in which a training step adds up gradients over the replicas; that of the
	// gradient if zero, which is Parameters. BFloat16 sends half the bytes of Float32.
	Reduce dtypes.DType
	// LossScale is how a training step scales its loss, which float16 needs; not at all if zero. A
	// forward part alone has no gradients, and nothing is scaled.
	LossScale LossScale
}

// The policies of Keras's names float32, mixed_bfloat16 and mixed_float16.
var (
	// Float32 keeps and computes all in float32, also what the arguments have in other floats.
	Float32 = Policy{Parameters: dtypes.Float32}
	// MixedBFloat16 keeps variables in float32 and computes in bfloat16.
	MixedBFloat16 = Policy{Parameters: dtypes.Float32, Compute: dtypes.BFloat16}
	// MixedFloat16 keeps variables in float32, computes in float16 and scales the loss. Float16 has
	// no numbers beyond 65,504, and below 6e-5 only coarse ones: without a loss scale small gradients
	// become zeros.
	MixedFloat16 = Policy{Parameters: dtypes.Float32, Compute: dtypes.Float16, LossScale: DynamicLossScale}
)

// Filled returns the policy with its defaults in the place of zeros. The zero Policy stays zero.
func (p Policy) Filled() Policy {
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
	p.LossScale = p.LossScale.Filled()
	return p
}

// Validate returns an [*errkind.Fault] of kind ValueError that names a field that cannot be.
func (p Policy) Validate() error {
	if p == (Policy{}) {
		return nil
	}
	f := p.Filled()
	for _, field := range []struct {
		name  string
		dtype dtypes.DType
	}{
		{"Parameters", f.Parameters}, {"Compute", f.Compute}, {"Output", f.Output},
		{"Accumulate", f.Accumulate}, {"Partial", f.Partial}, {"Reduce", f.Reduce},
	} {
		if field.dtype != dtypes.InvalidDType && !isFloat(field.dtype) {
			return wrong("Policy."+field.name, "use Float32, BFloat16, Float16 or Float64",
				"%s is not a dtype that a model can be computed in", field.dtype)
		}
	}
	for _, field := range []struct {
		name  string
		dtype dtypes.DType
	}{{"Accumulate", f.Accumulate}, {"Partial", f.Partial}} {
		if field.dtype != f.Compute && !(field.dtype.Bits() > f.Compute.Bits()) {
			return wrong("Policy."+field.name, fmt.Sprintf("use %s or a wider dtype", f.Compute),
				"sums in %s do not hold the terms, which are %s", field.dtype, f.Compute)
		}
	}
	return p.LossScale.Validate()
}

// String returns the dtypes of the fields, such as "parameters float32, compute bfloat16, ...".
func (p Policy) String() string {
	if p == (Policy{}) {
		return "no policy"
	}
	p = p.Filled()
	text := fmt.Sprintf("parameters %s, compute %s, output %s, accumulate %s, partial %s", p.Parameters, p.Compute, p.Output, p.Accumulate, p.Partial)
	if p.Reduce != dtypes.InvalidDType {
		text += fmt.Sprintf(", reduce %s", p.Reduce)
	}
	if p.LossScale != (LossScale{}) {
		text += ", loss scale " + p.LossScale.String()
	}
	return text
}

// isFloat reports whether models are computed in a dtype: the narrower floats have too few numbers,
// and complex numbers have no policy.
func isFloat(d dtypes.DType) bool {
	return d == dtypes.Float64 || d == dtypes.Float32 || d == dtypes.BFloat16 || d == dtypes.Float16
}

// wrong returns the error of a value that cannot be.
func wrong(subject, hint, reason string, args ...any) *errkind.Fault {
	return &errkind.Fault{Op: "precision:", Subject: subject, Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: errkind.ValueError}
}
