package input

import (
	"encoding/json"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// State is a saved position in a dataset. It can be stored as JSON and is small, because it
// contains no elements. A restore may read some elements again; each operation documents which
// ones. The zero State is the start. A State is valid only for the dataset that created it: any
// other dataset returns an error that matches [ErrState].
type State struct {
	Op       string  `json:"op,omitempty"` // name of the operation that created the position
	Counters []int64 `json:"at,omitempty"` // progress of the operation, such as element or row indices
	Inputs   []State `json:"in,omitempty"` // positions of the operation's inputs
}

// ErrState matches errors for a State that belongs to another dataset or is invalid.
var ErrState = errkind.New(errkind.ValueError, "input: the saved position does not fit this dataset")

// IsZero reports whether s is the start of a dataset.
func (s State) IsZero() bool { return s.Op == "" && len(s.Counters) == 0 && len(s.Inputs) == 0 }

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

// forOp checks that s is a position of op with the given numbers of counters and inputs, and
// returns s. It converts the zero State to a start position of op with these numbers.
func (s State) forOp(op string, counters, inputs int) (State, error) {
	if s.IsZero() {
		return State{Op: op, Counters: make([]int64, counters), Inputs: make([]State, inputs)}, nil
	}
	return s, s.validate(op, counters, inputs)
}

// validate checks that s was created by op and has the given numbers of counters and inputs. A
// negative counter is an error.
func (s State) validate(op string, counters, inputs int) error {
	if s.Op != op || len(s.Counters) != counters || len(s.Inputs) != inputs {
		return stateError("it has %q with %d counters and %d inputs where %q with %d and %d is needed", s.Op,
			len(s.Counters), len(s.Inputs), op, counters, inputs)
	}
	return s.checkCounters()
}

func (s State) checkCounters() error {
	for _, v := range s.Counters {
		if v < 0 {
			return stateError("%q has the negative counter %d", s.Op, v)
		}
	}
	return nil
}
