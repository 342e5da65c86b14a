package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
)

const (
	formatName    = "tpustrategy.checkpoint"
	formatVersion = 1

	manifestFile  = "checkpoint.json"
	variablesFile = "variables.safetensors"

	// maxManifest bounds what is read into memory: a hundred thousand variables take a tenth of it.
	maxManifest = 256 << 20
)

// manifest is what a checkpoint says of itself, beside the tensors.
type manifest struct {
	Format   string            `json:"format"`
	Version  int               `json:"version"`
	Step     int64             `json:"step"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Bytes and CRC32C are of the whole variables file.
	Bytes  int64    `json:"bytes"`
	CRC32C checksum `json:"crc32c"`
	// HeaderBytes and HeaderCRC32C are of what comes before its tensors.
	HeaderBytes  int64           `json:"header_bytes"`
	HeaderCRC32C checksum        `json:"header_crc32c"`
	Variables    []savedVariable `json:"variables"`
}

type savedVariable struct {
	Path   string `json:"path"`
	Tensor string `json:"tensor"` // its name in the variables file
	// CRC32C is of the tensor's bytes.
	CRC32C          checksum `json:"crc32c"`
	Trainable       bool     `json:"trainable"`
	Synchronization string   `json:"synchronization"`
	Aggregation     string   `json:"aggregation"`
}

// signed is the file's outer form: a checksum of the exact bytes of the manifest.
type signed struct {
	CRC32C   checksum        `json:"crc32c"`
	Manifest json.RawMessage `json:"checkpoint"`
}

func (m *manifest) encode() ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return json.Marshal(signed{checksum(0).plus(body), body})
}

// malformed is what is wrong with a manifest, which [CorruptError] says of which file.
func malformed(format string, args ...any) error {
	return errkind.New(errkind.DataLossError, fmt.Sprintf(format, args...))
}

// parseManifest decodes what encode wrote. Anything else is an error.
func parseManifest(data []byte) (*manifest, error) {
	if version := laterVersion(data); version != 0 {
		return nil, &VersionError{File: manifestFile, Version: version, Reads: formatVersion}
	}
	var s signed
	if err := strict(data, &s); err != nil {
		return nil, err
	}
	if got := checksum(0).plus(s.Manifest); got != s.CRC32C {
		return nil, malformed("its checksum is %s, it says %s", got, s.CRC32C)
	}
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(s.Manifest, &head); err != nil {
		return nil, err
	}
	if head.Format != formatName {
		return nil, malformed("its format is %q, not %q", head.Format, formatName)
	}
	if head.Version != formatVersion {
		return nil, malformed("its version is %d, and there are 1 to %d", head.Version, formatVersion)
	}
	m := &manifest{}
	if err := strict(s.Manifest, m); err != nil {
		return nil, err
	}
	paths, tensors := map[string]bool{}, map[string]bool{}
	for _, v := range m.Variables {
		if v.Path == "" || paths[v.Path] || tensors[v.Tensor] {
			return nil, malformed("variable %q (tensor %q) has no name, or is there twice", v.Path, v.Tensor)
		}
		paths[v.Path], tensors[v.Tensor] = true, true
		if _, _, ok := v.rules(); !ok {
			return nil, malformed("variable %q has synchronization %q, aggregation %q", v.Path, v.Synchronization, v.Aggregation)
		}
	}
	if m.Step < 0 || m.HeaderBytes < 0 || m.HeaderBytes > m.Bytes || m.HeaderBytes > maxManifest {
		return nil, malformed("step %d, a header of %d bytes in %d", m.Step, m.HeaderBytes, m.Bytes)
	}
	return m, nil
}

// laterVersion returns the version of a manifest that a later program wrote, whole; 0 if this is
// none. Such a manifest may have fields that this program does not know, and another checksum.
func laterVersion(data []byte) int {
	var outer struct {
		CRC32C   *checksum       `json:"crc32c"`
		Manifest json.RawMessage `json:"checkpoint"`
	}
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if json.Unmarshal(data, &outer) != nil || json.Unmarshal(outer.Manifest, &head) != nil || head.Format != formatName || head.Version <= formatVersion {
		return 0
	}
	if outer.CRC32C != nil && checksum(0).plus(outer.Manifest) != *outer.CRC32C {
		return 0 // damage
	}
	return head.Version
}

// rules returns what the names of the rules stand for; false if they are none.
func (v savedVariable) rules() (strategy.VariableSynchronization, strategy.VariableAggregation, bool) {
	for _, s := range []strategy.VariableSynchronization{strategy.OnWrite, strategy.OnRead} {
		for a := strategy.AggregateNone; a <= strategy.AggregateFirst; a++ {
			if s.String() == v.Synchronization && a.String() == v.Aggregation {
				return s, a, true
			}
		}
	}
	return 0, 0, false
}

// strict decodes one JSON value with no unknown fields and nothing after it.
func strict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return malformed("it ends before its end")
		}
		return err
	}
	if rest := strings.TrimSpace(string(data[d.InputOffset():])); rest != "" {
		return malformed("it goes on after its end")
	}
	return nil
}
