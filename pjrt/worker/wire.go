package worker

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// protocolVersion is the version of the messages between a program and its workers.
const protocolVersion = 4

// request is the message that asks a worker for a compilation. It is encoded with encoding/gob.
type request struct {
	Protocol    int
	Plugin      string
	OpenOptions pjrt.OpenOptions
	// UseClient selects compilation with a new client, which has ClientOptions, instead of a topology.
	UseClient     bool
	ClientOptions map[string]any
	// TopologyName and TopologyOptions describe the topology. Otherwise, Topology is its serialized
	// form.
	TopologyName    string
	TopologyOptions map[string]any
	Topology        []byte
	Program         pjrt.Program
	Options         pjrt.CompileOptions
	// Transforms are names of transforms. StopAtStage requests only the program at Stage.
	Transforms  []string
	StopAtStage bool
	Stage       pjrt.Stage
	// MemoryBytes is the memory limit of the worker. 0 means no limit.
	MemoryBytes int64
}

// response is the message that a worker returns. It contains the record of the compiled program,
// the module at the stage at which the compilation was stopped, or an error.
type response struct {
	Protocol int
	Record   pjrt.ExecutableRecord
	Module   []byte
	// One of these fields is set if the compilation failed. ErrorText is the text of an error that is
	// neither Error nor CompileError. ErrorKind is its kind, and Unsupported is true if it matches
	// errors.ErrUnsupported.
	Error        *pjrt.Error
	CompileError *pjrt.CompileError
	ErrorText    string
	ErrorKind    errkind.Kind
	Unsupported  bool
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(v)
	return b.Bytes(), err
}

func decode(data []byte, dst any) error { return gob.NewDecoder(bytes.NewReader(data)).Decode(dst) }

// setError stores err in the response.
func (resp *response) setError(err error) {
	if errors.As(err, &resp.Error) || errors.As(err, &resp.CompileError) {
		return
	}
	resp.ErrorText, resp.ErrorKind, resp.Unsupported = err.Error(), errkind.KindOf(err), errors.Is(err,
		errors.ErrUnsupported)
}

// err returns the error in the response.
func (resp *response) err() error {
	switch {
	case resp.Protocol != protocolVersion:
		return &errkind.Fault{Op: "worker: compile",
			Reason: fmt.Sprintf("the worker's program uses protocol version %d, but this program uses %d",
				resp.Protocol,
				protocolVersion),
			Hint: "build both programs from the same version", Class: errkind.FailedPreconditionError}
	case resp.Error != nil:
		return resp.Error
	case resp.CompileError != nil:
		return resp.CompileError
	case resp.ErrorText != "" && resp.Unsupported:
		return &errkind.Fault{Op: "worker: compile", Reason: resp.ErrorText, Match: errors.ErrUnsupported}
	case resp.ErrorText != "":
		return &errkind.Fault{Op: "worker: compile", Reason: resp.ErrorText, Class: resp.ErrorKind}
	}
	return nil
}
