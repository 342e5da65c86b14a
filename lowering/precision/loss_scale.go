package precision

import (
	"cmp"
	"fmt"
	"math"
)

// LossScale is a factor that multiplies the loss before its gradients are computed and divides the
// gradients, so that small gradients do not underflow in float16. It corresponds to TensorFlow's
// tf.keras.mixed_precision.LossScaleOptimizer. The zero value does not scale.
type LossScale struct {
	// Initial is the first scale, at least 1. If it is 0 and another field is set, it is 32,768.
	Initial float64
	// Interval makes the scale dynamic if it is positive. After this number of consecutive steps
	// with finite gradients, the scale is multiplied by Factor. After a step with gradients that
	// are not finite, which is skipped, the scale is divided by Factor, down to 1. If 0, the scale
	// is fixed and no step is skipped.
	Interval int
	// Factor is the factor of a dynamic scale. It must be greater than 1. 0 means 2.
	Factor float64
}

// DynamicLossScale is TensorFlow's default: initially 32,768, doubled after 2,000 consecutive steps
// with finite gradients.
var DynamicLossScale = LossScale{Initial: 1 << 15, Interval: 2000, Factor: 2}

// FixedLossScale returns a constant scale.
func FixedLossScale(scale float64) LossScale { return LossScale{Initial: scale} }

// Dynamic reports whether the scale changes during training.
func (s LossScale) Dynamic() bool { return s.Interval > 0 }

// WithDefaults returns the loss scale with zero fields replaced by their defaults. The zero value
// is returned unchanged.
func (s LossScale) WithDefaults() LossScale {
	if s == (LossScale{}) {
		return s
	}
	s.Initial, s.Factor = cmp.Or(s.Initial, DynamicLossScale.Initial), cmp.Or(s.Factor, DynamicLossScale.Factor)
	return s
}

// Validate returns an [*errkind.Fault] of kind ValueError for the first invalid field.
func (s LossScale) Validate() error {
	f := s.WithDefaults()
	switch {
	case f == (LossScale{}):
		return nil
	case !(f.Initial >= 1) || f.Initial > math.MaxFloat32:
		return invalidError("LossScale.Initial", "use a finite number from 1, such as 32768", "the scale is %v", s.Initial)
	case f.Interval < 0:
		return invalidError("LossScale.Interval", "use 2000, or 0 for a scale that never changes",
			"the scale grows after %d steps", s.Interval)
	case !(f.Factor > 1) || f.Factor > math.MaxFloat32:
		return invalidError("LossScale.Factor", "use a finite number above 1, such as 2", "the scale is multiplied by %v",
			s.Factor)
	}
	return nil
}

// String returns a description such as "32768, times 2 after 2000 steps" or "1024, fixed".
func (s LossScale) String() string {
	s = s.WithDefaults()
	switch {
	case s == (LossScale{}):
		return "none"
	case !s.Dynamic():
		return fmt.Sprintf("%v, fixed", s.Initial)
	}
	return fmt.Sprintf("%v, times %v after %d steps", s.Initial, s.Factor, s.Interval)
}
