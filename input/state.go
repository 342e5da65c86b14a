package input

import (
	"encoding/json"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// State is a position in a dataset. It is plain data and small: it never holds elements (each
// operation says what a restore reads again). The zero State is the start. A State can be stored as
// JSON. It fits only the dataset that it came from: the error of any other matches [ErrState].
type State struct {
	Op string  `json:"op,omitempty"` // the operation that wrote it
	At []int64 `json:"at,omitempty"` // its own counters
	In []State `json:"in,omitempty"` // the positions of its inputs
}

// ErrState matches the error of a State that does not fit the dataset that is opened with it.
var ErrState = errkind.New(errkind.ValueError, "input: the saved position does not fit this dataset")

// IsZero reports whether s is the start of a dataset.
func (s State) IsZero() bool { return s.Op == "" && len(s.At) == 0 && len(s.In) == 0 }

// Marshal returns the state as JSON.
func (s State) Marshal() ([]byte, error) { return json.Marshal(s) }

// ParseState reads the JSON that Marshal wrote. Its errors match [ErrState].
func ParseState(data []byte) (State, error) {
	var s State
	if err := json.Unmarshal(data, &s); err != nil {
		return State{}, &errkind.Fault{Match: ErrState, Err: err, Hint: "give what Marshal wrote"}
	}
	return s, nil
}

// of returns a position of op with that many counters and inputs: s if that is one, and the start for
// the zero State.
func (s State) of(op string, at, in int) (State, error) {
	if s.IsZero() {
		return State{Op: op, At: make([]int64, at), In: make([]State, in)}, nil
	}
	return s, s.want(op, at, in)
}

// want checks that the state was written by op with the given number of counters, none negative,
// and inputs.
func (s State) want(op string, at, in int) error {
	if s.Op != op || len(s.At) != at || len(s.In) != in {
		return misfit("it has %q with %d counters and %d inputs where %q with %d and %d is needed", s.Op, len(s.At), len(s.In), op, at, in)
	}
	return s.checkAt()
}

func (s State) checkAt() error {
	for _, v := range s.At {
		if v < 0 {
			return misfit("%q has the negative counter %d", s.Op, v)
		}
	}
	return nil
}
