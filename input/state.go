package input

import (
	"encoding/json"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// State is a position in a dataset: plain data, small, never the elements themselves (see each operation for what a
// restore reads again). The zero State is the start. It prints and stores as JSON, and it fits the dataset it came from
// only: another pipeline answers with an error that matches [ErrState].
type State struct {
	Op string  `json:"op,omitempty"` // the operation that wrote it
	At []int64 `json:"at,omitempty"` // its own counters
	In []State `json:"in,omitempty"` // the positions of its inputs
}

// ErrState is matched by errors of states that do not fit the dataset they are given to.
var ErrState = errkind.New(errkind.ValueError, "input: the saved position does not fit this dataset")

// IsZero reports whether s is the start of a dataset.
func (s State) IsZero() bool { return s.Op == "" && len(s.At) == 0 && len(s.In) == 0 }

// Marshal encodes the state as JSON.
func (s State) Marshal() ([]byte, error) { return json.Marshal(s) }

// ParseState decodes what Marshal wrote.
func ParseState(data []byte) (State, error) {
	var s State
	if err := json.Unmarshal(data, &s); err != nil {
		return State{}, fmt.Errorf("%w: %w", ErrState, err)
	}
	return s, nil
}

// want checks that the state was written by op with the given number of counters, none negative, and inputs.
func (s State) want(op string, at, in int) error {
	if s.Op != op || len(s.At) != at || len(s.In) != in {
		return fmt.Errorf("%w: it has %q with %d counters and %d inputs where %q with %d and %d is needed", ErrState, s.Op, len(s.At), len(s.In), op, at, in)
	}
	return s.checkAt()
}

func (s State) checkAt() error {
	for _, v := range s.At {
		if v < 0 {
			return fmt.Errorf("%w: %q has the negative counter %d", ErrState, s.Op, v)
		}
	}
	return nil
}
