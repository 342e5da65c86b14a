// Package valuecases runs recorded cases of TensorFlow's topologies, device assignments
// and shardings on packages tpu and sharding. It needs no plugin and no cgo, so that both
// the tests of those packages and the whole conformance run use it.
package valuecases

import (
	"bytes"
	"encoding/json"
	"testing"
)

// Case is one recorded case.
type Case struct {
	Section, Name string
	Run           func(t *T)
}

// T is a running case. Both functions end it.
type T struct {
	*testing.T
	// NotApplicable is for a case that cannot be written here.
	NotApplicable func(Why)
	// Unmapped is for a case that nothing here knows how to run.
	Unmapped func(format string, args ...any)
}

// Why is why a case does not apply.
type Why uint8

// The reasons.
const (
	// AssignSPMD: TensorFlow refuses what is possible here.
	AssignSPMD Why = iota
	// NotNumbers, NotTopology and OtherRank: the input does not compile.
	NotNumbers
	NotTopology
	OtherRank
	// Negative: a coordinate counts from the end of a NumPy array.
	Negative
	// Repeated: two devices have one place, of which TensorFlow forgets one.
	Repeated
	// Unreduced: XLA has subgroups of parts of a sum, TensorFlow refuses them.
	Unreduced
	// NoShardingOp: unspecified dimensions are of an op of TensorFlow's graphs.
	NoShardingOp
)

// Run runs cases as subtests, those left out that left answers true for.
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

// Strictly decodes the input or the output of a case. A field that nothing here reads makes the case
// unmapped.
func Strictly(t *T, part json.RawMessage, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(part))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Unmapped("%s: %v", part, err)
	}
}
