package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/safetensors"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Constants of the objects of a sharded checkpoint, which the package comment describes. Each host writes a
// tensor file and a small manifest into a folder with the random name of the save. The checkpoint's manifest
// is written last. A save has a void.json before its first object is written, and before the manifest of
// its checkpoint is removed.
const (
	shardedFormat = "tpustrategy.checkpoint.sharded"
	partFormat    = "tpustrategy.checkpoint.part"
	voidFormat    = "tpustrategy.checkpoint.void"
	formatVersion = 1 // of each format

	manifestFile = "checkpoint.json"
	voidFile     = "void.json"
	stepPrefix   = "step-"

	// maxManifest is the maximum size of a manifest in bytes, enough for a million variables.
	maxManifest = 256 << 20
)

// shardedManifest is the manifest of a complete checkpoint. It lists the variables, and the size
// and checksum of the manifest of each process.
type shardedManifest struct {
	Format   string            `json:"format"`
	Version  int               `json:"version"`
	Step     int64             `json:"step"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Metrics are numbers as text, because JSON has no infinities.
	Metrics map[string]string `json:"metrics,omitempty"`
	// Save is the random name of the save.
	Save       string         `json:"save"`
	BlockBytes int64          `json:"block_bytes"`
	Hosts      []hostPart     `json:"hosts"`
	Variables  []shardedValue `json:"variables"`
}

// hostPart is the size and checksum of a [partManifest].
type hostPart struct {
	Bytes  int64    `json:"bytes"`
	CRC32C checksum `json:"crc32c"`
}

// shardedValue describes a variable in a shardedManifest.
type shardedValue struct {
	Path            string            `json:"path"`
	DType           safetensors.DType `json:"dtype"`
	Shape           []int             `json:"shape"`
	Trainable       bool              `json:"trainable"`
	Synchronization string            `json:"synchronization"`
	Aggregation     string            `json:"aggregation"`
}

// partManifest describes the tensor file of one process: the regions that the process saved in it.
type partManifest struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Step    int64  `json:"step"`
	Save    string `json:"save"`
	Host    int    `json:"host"`
	Hosts   int    `json:"hosts"`
	// Failed is the reason why the host did not save its part, or empty.
	Failed string `json:"failed,omitempty"`
	// Bytes is the size of the tensor file.
	Bytes int64 `json:"bytes"`
	// HeaderBytes and HeaderCRC32C describe the bytes of the tensor file before its tensors.
	HeaderBytes  int64        `json:"header_bytes"`
	HeaderCRC32C checksum     `json:"header_crc32c"`
	Regions      []partRegion `json:"regions"`
}

// voidManifest is the content of void.json, which allows other runs to remove the objects of an
// abandoned save.
type voidManifest struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Step    int64  `json:"step"`
	Save    string `json:"save"`
}

// partRegion describes where a slice of a variable is stored in the tensor file of a process.
type partRegion struct {
	Variable int   `json:"variable"`
	Start    []int `json:"start"`
	Size     []int `json:"size"`
	Offset   int64 `json:"offset"` // offset in the file
	Bytes    int64 `json:"bytes"`
	// CRC32C has the checksums of the region's blocks, eight hexadecimal digits each.
	CRC32C string `json:"crc32c"`
}

func stepName(step int64) string { return fmt.Sprintf("%s%010d", stepPrefix, step) }

// parseStep returns the step of a name that stepName created. It returns false for any other name.
func parseStep(name string) (int64, bool) {
	digits, ok := strings.CutPrefix(name, stepPrefix)
	step, err := strconv.ParseInt(digits, 10, 64)
	return step, ok && err == nil && step >= 0 && stepName(step) == name
}

func manifestName(step int64) string { return stepName(step) + "/" + manifestFile }

func voidName(step int64, save string) string {
	return fmt.Sprintf("%s/%s/%s", stepName(step), save, voidFile)
}

func partName(step int64, save string, host int) string {
	return fmt.Sprintf("%s/%s/host-%04d.json", stepName(step), save, host)
}

func shardsName(step int64, save string, host int) string {
	return fmt.Sprintf("%s/%s/host-%04d.safetensors", stepName(step), save, host)
}

// envelope is the outer JSON object of a manifest file. It contains the manifest and a checksum of
// the manifest's exact bytes.
type envelope struct {
	CRC32C   checksum        `json:"crc32c"`
	Manifest json.RawMessage `json:"checkpoint"`
}

// encodeManifest encodes a manifest as JSON and adds a checksum.
func encodeManifest(m any) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return json.Marshal(envelope{checksum(0).update(body), body})
}

// decodeManifest decodes a manifest file into dst. It returns an error if the checksum, the format
// or the version does not match.
func decodeManifest(data []byte, format string, dst any) error {
	head, undamaged := readHead(data)
	if head.Format == format && head.Version > formatVersion && undamaged {
		// A later version may have unknown fields and another checksum.
		return &errkind.Fault{Match: ErrVersion, Op: "checkpoint:", Subject: manifestFile,
			Reason: fmt.Sprintf("its version is %d, this program reads %d", head.Version, formatVersion),
			Hint:   "use the program that wrote it, or a later one, or remove the checkpoint"}
	}
	var s envelope
	if err := decodeStrict(data, &s); err != nil {
		return err
	}
	if got := checksum(0).update(s.Manifest); got != s.CRC32C {
		return formatError("its checksum is %s, its header has %s", got, s.CRC32C)
	}
	if head.Format != format {
		return formatError("its format is %q, not %q", head.Format, format)
	}
	if head.Version != formatVersion {
		return formatError("its version is %d, and there are 1 to %d", head.Version, formatVersion)
	}
	return decodeStrict(s.Manifest, dst)
}

// manifestHead has the fields that all kinds and versions of manifests have in common.
type manifestHead struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
}

// readHead parses the common fields of a manifest, even if its version is unknown. The result head
// is zero if data is not a manifest. The result undamaged is false if the checksum does not match.
func readHead(data []byte) (h manifestHead, undamaged bool) {
	var outer struct {
		CRC32C   *checksum       `json:"crc32c"`
		Manifest json.RawMessage `json:"checkpoint"`
	}
	if json.Unmarshal(data, &outer) != nil || json.Unmarshal(outer.Manifest, &h) != nil {
		return manifestHead{}, false
	}
	return h, outer.CRC32C == nil || checksum(0).update(outer.Manifest) == *outer.CRC32C
}

// decodeStrict decodes one JSON value. It rejects unknown fields and trailing data.
func decodeStrict(data []byte, dst any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(dst); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return formatError("it is truncated")
		}
		return err
	}
	if rest := strings.TrimSpace(string(data[d.InputOffset():])); rest != "" {
		return formatError("data follows its end")
	}
	return nil
}

// formatError returns an error of kind DataLossError that describes an invalid file. The caller
// adds the name of the file by wrapping the error in a [CorruptError].
func formatError(format string, args ...any) error {
	return errkind.New(errkind.DataLossError, fmt.Sprintf(format, args...))
}

func parseSharded(data []byte) (*shardedManifest, error) {
	m := &shardedManifest{}
	if err := decodeManifest(data, shardedFormat, m); err != nil {
		return nil, err
	}
	paths := map[string]bool{}
	for _, v := range m.Variables {
		if v.Path == "" || paths[v.Path] {
			return nil, formatError("variable %q has no name, or occurs twice", v.Path)
		}
		paths[v.Path] = true
		if _, _, ok := parseRules(v.Synchronization, v.Aggregation); !ok {
			return nil, formatError("variable %q has synchronization %q, aggregation %q", v.Path, v.Synchronization,
				v.Aggregation)
		}
		if _, ok := specShape(safetensors.Spec{DType: v.DType, Shape: v.Shape}); !ok {
			return nil, formatError("variable %q has dtype %s and shape %v", v.Path, v.DType, v.Shape)
		}
	}
	if m.Step < 0 || m.BlockBytes != blockBytes || len(m.Hosts) == 0 || !isSaveName(m.Save) {
		return nil, formatError("step %d, save %q, blocks of %d bytes, %d hosts", m.Step, m.Save, m.BlockBytes, len(m.Hosts))
	}
	return m, nil
}

// parsePart decodes a partManifest. It returns an error if the manifest belongs to another step,
// save or process. hosts is the number of processes of the save.
func parsePart(data []byte, step int64, save string, host, hosts int) (*partManifest, error) {
	p := &partManifest{}
	if err := decodeManifest(data, partFormat, p); err != nil {
		return nil, err
	}
	if p.Step != step || p.Save != save || p.Host != host || p.Hosts != hosts {
		return nil, formatError("it is part %d of %d of step %d, save %s", p.Host, p.Hosts, p.Step, p.Save)
	}
	return p, nil
}

func isSaveName(name string) bool {
	return !strings.ContainsAny(name, "/.") && storage.CheckName(name) == nil
}

func (v shardedValue) info() Info {
	shape, _ := specShape(safetensors.Spec{DType: v.DType, Shape: v.Shape})
	synchronization, aggregation, _ := parseRules(v.Synchronization, v.Aggregation)
	return Info{Path: v.Path, Shape: shape, Trainable: v.Trainable, Synchronization: synchronization,
		Aggregation: aggregation}
}

// toRegion converts the manifest's description of a region to a region. object is the index of the
// file that contains the region, and fileBytes is the size of this file. toRegion returns an error
// if the region does not fit the variable or the file.
func (r partRegion) toRegion(object int, v *variable, fileBytes int64) (region, error) {
	g := region{start: r.Start, size: r.Size, object: object, offset: r.Offset, bytes: r.Bytes}
	dims := v.Shape.Dimensions
	n := v.elementSize
	if len(r.Start) != len(dims) || len(r.Size) != len(dims) {
		return g, formatError("a region of variable %q has %d dimensions", v.Path, len(r.Size))
	}
	for d := range dims {
		if r.Start[d] < 0 || r.Size[d] < 1 || r.Size[d] > dims[d]-r.Start[d] {
			return g, formatError("a region of variable %q begins at %v and has size %v, in %v", v.Path, r.Start, r.Size, dims)
		}
		n *= int64(r.Size[d])
	}
	if n != r.Bytes || r.Offset < 0 || r.Offset > fileBytes-n || len(r.CRC32C) != 8*numBlocks(n) {
		return g, formatError("a region of variable %q has %d bytes at %d, and %d checksum digits", v.Path, r.Bytes,
			r.Offset, len(r.CRC32C))
	}
	g.sums = make([]checksum, numBlocks(n))
	for i := range g.sums {
		if err := g.sums[i].UnmarshalText([]byte(r.CRC32C[8*i : 8*i+8])); err != nil {
			return g, formatError("a region of variable %q has the checksum %q", v.Path, r.CRC32C[8*i:8*i+8])
		}
	}
	return g, nil
}

// parseRules parses the names of a synchronization and an aggregation. It returns false for an
// unknown name.
func parseRules(synchronization, aggregation string) (strategy.VariableSynchronization, strategy.VariableAggregation,
	bool) {
	for _, s := range []strategy.VariableSynchronization{strategy.OnWrite, strategy.OnRead} {
		for a := strategy.AggregateNone; a <= strategy.AggregateFirst; a++ {
			if s.String() == synchronization && a.String() == aggregation {
				return s, a, true
			}
		}
	}
	return 0, 0, false
}
