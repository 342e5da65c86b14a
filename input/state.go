package input

import (
	"encoding/json"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// State is a position in a dataset. It is small and contains no elements; each operation documents
// which elements a restore reads again. The zero State is the start. A State can be stored as JSON.
// It is valid only for the dataset that created it: opening another dataset with it returns an
// error that matches [ErrState].
type State struct {
	Op string  `json:"op,omitempty"` // the operation that created it
	At []int64 `json:"at,omitempty"` // the counters of the operation
	In []State `json:"in,omitempty"` // the positions of the operation's inputs
}

// ErrState matches errors for a State that belongs to another dataset or is invalid.
var ErrState = errkind.New(errkind.ValueError, "input: the saved position does not fit this dataset")

// IsZero reports whether s is the start of a dataset.
func (s State) IsZero() bool { return s.Op == "" && len(s.At) == 0 && len(s.In) == 0 }

// Marshal returns the state as JSON.
func (s State) Marshal() ([]byte, error) { return json.Marshal(s) }

// ParseState parses JSON written by [State.Marshal]. Its errors match [ErrState].
func ParseState(data []byte) (State, error) {
	var s State
	if err := json.Unmarshal(data, &s); err != nil {
		return State{}, &errkind.Fault{Match: ErrState, Err: err, Hint: "give what Marshal wrote"}
	}
	return s, nil
}

// of checks that s is a position of op with the given numbers of counters and inputs, and returns
// it. For the zero State it returns the start position.
func (s State) of(op string, at, in int) (State, error) {
	if s.IsZero() {
		return State{Op: op, At: make([]int64, at), In: make([]State, in)}, nil
	}
	return s, s.want(op, at, in)
}

// want checks that s was created by op and has the given numbers of counters and inputs, and that
// no counter is negative.
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
