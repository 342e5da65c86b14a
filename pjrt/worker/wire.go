package worker

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// protocol is the version of what goes between a program and its workers.
const protocol = 3

// request asks a worker for a compilation. Options' values are of the types that plugins take,
// which gob knows.
type request struct {
	Protocol int
	Plugin   string
	Check    pjrt.OpenOptions
	// Client asks for a client with ClientOptions to compile, and not for a topology.
	Client        bool
	ClientOptions map[string]any
	// Name and TopologyOptions describe the topology, or Topology is its serialized form.
	Name            string
	TopologyOptions map[string]any
	Topology        []byte
	Program         pjrt.Program
	Options         pjrt.CompileOptions
	// Transforms are names; Probe asks for the program at Stage, and no more.
	Transforms []string
	Probe      bool
	Stage      pjrt.Stage
	// MemoryBytes bounds the worker's memory; 0 does not.
	MemoryBytes int64
}

// answer is the compiled program, that of a probe, or an error.
type answer struct {
	Protocol int
	Record   pjrt.ExecutableRecord
	Module   []byte
	// One of these is set where there is no program; Text is any other error, of this Kind, and
	// Unsupported says that it matches errors.ErrUnsupported.
	Error       *pjrt.Error
	Compile     *pjrt.CompileError
	Text        string
	Kind        errkind.Kind
	Unsupported bool
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(v)
	return b.Bytes(), err
}

func decode(data []byte, into any) error { return gob.NewDecoder(bytes.NewReader(data)).Decode(into) }

// fail makes err the answer.
func (a *answer) fail(err error) {
	if errors.As(err, &a.Error) || errors.As(err, &a.Compile) {
		return
	}
	a.Text, a.Kind, a.Unsupported = err.Error(), errkind.Of(err), errors.Is(err, errors.ErrUnsupported)
}

// err is the error of the answer.
func (a *answer) err() error {
	switch {
	case a.Protocol != protocol:
		return &errkind.Fault{Op: "worker: compile", Reason: fmt.Sprintf("the worker's program speaks protocol %d, this one %d", a.Protocol, protocol), Hint: "build both from one version", Class: errkind.FailedPreconditionError}
	case a.Error != nil:
		return a.Error
	case a.Compile != nil:
		return a.Compile
	case a.Text != "" && a.Unsupported:
		return &errkind.Fault{Op: "worker: compile", Reason: a.Text, Match: errors.ErrUnsupported}
	case a.Text != "":
		return &errkind.Fault{Op: "worker: compile", Reason: a.Text, Class: a.Kind}
	}
	return nil
}
