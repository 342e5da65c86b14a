// Package valuecases runs recorded cases of TensorFlow's topologies, device assignments and shardings
// on packages tpu and sharding. It requires neither a plugin nor cgo. The tests of these packages and
// the conformance tests use it.
package valuecases

import (
	"bytes"
	"encoding/json"
	"testing"
)

// Case is a recorded case.
type Case struct {
	Section, Name string
	Run           func(t *T)
}

// T is a running case. Its function fields end the case.
type T struct {
	*testing.T
	// NotApplicable ends a case that does not apply to this module.
	NotApplicable func(Why)
	// Unmapped ends a case that this package does not support.
	Unmapped func(format string, args ...any)
}

// Why is the reason why a case does not apply.
type Why uint8

// Reasons.
const (
	// AssignSPMD: TensorFlow returns an error, but this module supports the input.
	AssignSPMD Why = iota
	// NotNumbers, NotTopology and OtherRank: the input does not compile in Go.
	NotNumbers
	NotTopology
	OtherRank
	// Negative: TensorFlow counts a negative coordinate from the end of a NumPy array.
	Negative
	// Repeated: two devices have the same coordinates, and TensorFlow ignores one of them.
	Repeated
	// Unreduced: XLA supports subgroups of partial sums, but TensorFlow does not.
	Unreduced
	// NoShardingOp: unspecified dimensions are a property of an op in TensorFlow's graphs.
	NoShardingOp
)

// Run runs cases as subtests. It skips the cases whose names left returns true for. left may be
// nil.
func Run(t *testing.T, cases []Case, left func(name string) bool) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Section+"/"+c.Name, func(t *testing.T) {
			if left != nil && left(c.Name) {
				t.Skip("the input cannot be written in Go")
			}
			c.Run(&T{T: t, NotApplicable: func(why Why) { t.Skipf("not applicable: %d", why) }, Unmapped: t.Fatalf})
		})
	}
}

// Strictly decodes the input or the output of a case. A case with an unknown field is unmapped.
func Strictly(t *T, part json.RawMessage, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(part))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Unmapped("%s: %v", part, err)
	}
}
