package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/internal/safetensors"
	"github.com/tpustrategy/tpustrategy/storage"
)

const (
	plainFormat   = "tpustrategy.checkpoint"
	variablesFile = "variables.safetensors"
)

// plainManifest describes a single-file checkpoint, which has one tensor file. Earlier versions of
// this package wrote such checkpoints. This version only reads them:
//
//	step-0000000012/variables.safetensors
//	step-0000000012/checkpoint.json
type plainManifest struct {
	Format   string            `json:"format"`
	Version  int               `json:"version"`
	Step     int64             `json:"step"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Bytes and CRC32C describe the variables file.
	Bytes  int64    `json:"bytes"`
	CRC32C checksum `json:"crc32c"`
	// HeaderBytes and HeaderCRC32C describe the bytes before the tensors.
	HeaderBytes  int64           `json:"header_bytes"`
	HeaderCRC32C checksum        `json:"header_crc32c"`
	Variables    []savedVariable `json:"variables"`
}

// savedVariable describes a variable in a plainManifest.
type savedVariable struct {
	Path   string `json:"path"`
	Tensor string `json:"tensor"` // name in the variables file
	// CRC32C is the checksum of the tensor's bytes.
	CRC32C          checksum `json:"crc32c"`
	Trainable       bool     `json:"trainable"`
	Synchronization string   `json:"synchronization"`
	Aggregation     string   `json:"aggregation"`
}

func parsePlainManifest(data []byte) (*plainManifest, error) {
	m := &plainManifest{}
	if err := decodeManifest(data, plainFormat, m); err != nil {
		return nil, err
	}
	paths, tensors := map[string]bool{}, map[string]bool{}
	for _, v := range m.Variables {
		if v.Path == "" || paths[v.Path] || tensors[v.Tensor] {
			return nil, formatError("variable %q (tensor %q) has no name, or occurs twice", v.Path, v.Tensor)
		}
		paths[v.Path], tensors[v.Tensor] = true, true
		if _, _, ok := parseRules(v.Synchronization, v.Aggregation); !ok {
			return nil, formatError("variable %q has synchronization %q, aggregation %q", v.Path, v.Synchronization,
				v.Aggregation)
		}
	}
	if m.Step < 0 || m.HeaderBytes < 0 || m.HeaderBytes > m.Bytes || m.HeaderBytes > maxManifest {
		return nil, formatError("step %d, a header of %d bytes in %d", m.Step, m.HeaderBytes, m.Bytes)
	}
	return m, nil
}

// openPlain opens a single-file checkpoint whose manifest is already verified.
func openPlain(ctx context.Context, s storage.Store, m *plainManifest) (*Checkpoint, error) {
	name := stepName(m.Step) + "/" + variablesFile
	path := s.String() + "/" + name
	opened, err := s.Open(ctx, name)
	if err != nil {
		return nil, readError(path, err)
	}
	c, file, err := openTensorFile(ctx, opened, path)
	if err != nil {
		return nil, err
	}
	if err := c.setVariables(ctx, m, file, opened); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// setVariables sets the checkpoint's variables to the variables that the manifest lists. It returns
// an error if the tensor file does not match the manifest.
func (c *Checkpoint) setVariables(ctx context.Context, m *plainManifest, file *safetensors.File,
	opened storage.Object) error {
	corrupt := func(format string, args ...any) error {
		return &CorruptError{File: c.path, Reason: fmt.Sprintf(format, args...)}
	}
	if got := opened.Size(); got != m.Bytes {
		return corrupt("it has %d bytes, %d were written", got, m.Bytes)
	}
	header := make([]byte, m.HeaderBytes)
	if err := opened.ReadAt(ctx, header, 0); err != nil {
		return readError(c.path, err)
	}
	if got := checksum(0).update(header); got != m.HeaderCRC32C {
		return corrupt("its header's checksum is %s, %s was written", got, m.HeaderCRC32C)
	}
	if tensors := file.Tensors(); len(tensors) != len(m.Variables) {
		return corrupt("it has %d tensors, %d were written", len(tensors), len(m.Variables))
	}
	c.step, c.metadata = m.Step, m.Metadata
	for _, v := range m.Variables {
		t, ok := file.Tensor(v.Tensor)
		if !ok {
			return corrupt("it has no tensor %q, which was written", v.Tensor)
		}
		shape, ok := specShape(t.Spec)
		if !ok {
			return corrupt("tensor %q has dtype %s, which was not written", t.Name, t.DType)
		}
		synchronization, aggregation, _ := parseRules(v.Synchronization, v.Aggregation)
		variable := newFileVariable(Info{Path: v.Path, Shape: shape, Trainable: v.Trainable,
			Synchronization: synchronization, Aggregation: aggregation}, t, file.DataOffset())
		variable.wholeChecksum = &singleChecksum{sum: v.CRC32C}
		c.variables = append(c.variables, variable)
	}
	return nil
}
