package precision

import (
	"cmp"
	"fmt"
	"math"
)

// LossScale multiplies the loss before its gradients are taken, and divides the gradients by as
// much, so that the small numbers between are not lost in float16: TensorFlow's
// tf.keras.mixed_precision.LossScaleOptimizer. The zero value does nothing.
type LossScale struct {
	// Initial is the first scale, 1 at least; 32,768 if zero and another field is set.
	Initial float64
	// Interval makes the scale dynamic: it is multiplied by Factor after that many steps in a row
	// whose gradients are finite, and divided by it, down to 1, after a step whose gradients are
	// not, which is not taken. 0 fixes the scale: every step is taken.
	Interval int
	// Factor is above 1; 2 if zero.
	Factor float64
}

// DynamicLossScale is TensorFlow's default: 32,768 at first, doubled after each 2,000 good steps.
var DynamicLossScale = LossScale{Initial: 1 << 15, Interval: 2000, Factor: 2}

// FixedLossScale is a scale that never changes.
func FixedLossScale(scale float64) LossScale { return LossScale{Initial: scale} }

// Dynamic reports whether steps change the scale.
func (s LossScale) Dynamic() bool { return s.Interval > 0 }

// Filled returns the loss scale with its defaults in the place of zeros. The zero value stays zero.
func (s LossScale) Filled() LossScale {
	if s == (LossScale{}) {
		return s
	}
	s.Initial, s.Factor = cmp.Or(s.Initial, DynamicLossScale.Initial), cmp.Or(s.Factor, DynamicLossScale.Factor)
	return s
}

// Validate returns an [*errkind.Fault] of kind ValueError that names a field that cannot be.
func (s LossScale) Validate() error {
	f := s.Filled()
	switch {
	case f == (LossScale{}):
		return nil
	case !(f.Initial >= 1) || f.Initial > math.MaxFloat32:
		return wrong("LossScale.Initial", "use a finite number from 1, such as 32768", "the scale is %v", s.Initial)
	case f.Interval < 0:
		return wrong("LossScale.Interval", "use 2000, or 0 for a scale that never changes", "the scale grows after %d steps", s.Interval)
	case !(f.Factor > 1) || f.Factor > math.MaxFloat32:
		return wrong("LossScale.Factor", "use a finite number above 1, such as 2", "the scale is multiplied by %v", s.Factor)
	}
	return nil
}

// String returns, for instance, "32768, times 2 after 2000 steps" or "1024, fixed".
func (s LossScale) String() string {
	s = s.Filled()
	switch {
	case s == (LossScale{}):
		return "none"
	case !s.Dynamic():
		return fmt.Sprintf("%v, fixed", s.Initial)
	}
	return fmt.Sprintf("%v, times %v after %d steps", s.Initial, s.Factor, s.Interval)
}
