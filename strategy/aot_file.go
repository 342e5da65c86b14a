package strategy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/module"
	"github.com/tpustrategy/tpustrategy/lowering/ragged"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// A step file holds a compiled step: a magic line, the header's length and the
// header as JSON, the lengths and bytes of the module's text and of the
// serialized program, and a checksum of all of it.

const stepMagic = "tpustrategy step\n"

// stepVersion is the version of the form. Another one is refused.
const stepVersion = 2

// stepHeader says what a step is and what it was compiled for.
type stepHeader struct {
	Version int    `json:"version"`
	Step    string `json:"step"`
	// Identity is the plugin's: see [cache.PluginIdentity].
	Identity string `json:"plugin"`
	// Devices is the kind of the devices.
	Devices string `json:"devices"`
	// Topology names the slice; Mesh, IDs and Coordinates are what counts.
	Topology    string              `json:"topology"`
	Mesh        tpu.Coordinates     `json:"mesh"`
	IDs         [][]int             `json:"device_ids"`
	Coordinates [][]tpu.Coordinates `json:"coordinates"`
	Axes        []sharding.Axis     `json:"axes"`
	Arguments   []stepTensor        `json:"arguments"`
	Results     []stepTensor        `json:"results"`
	Updates     []int               `json:"updates,omitempty"`
	// Steps is the number of steps of a loop, 0 for a step without one.
	Steps int `json:"steps,omitempty"`
	// Replicas are the program's, of one partition each; 0 is one replica of all devices.
	Replicas   int  `json:"replicas,omitempty"`
	SplitBatch bool `json:"split_batch,omitempty"`
	LocalBatch bool `json:"local_batch,omitempty"`
	PadRagged  bool `json:"pad_ragged,omitempty"`
	Keep       bool `json:"keep_padding,omitempty"`
	Training   bool `json:"training,omitempty"`
	Mirrored   bool `json:"mirrored_results,omitempty"`
	// NonFinite is the training step's [NonFinite], Gradients the variables that its
	// gradients are for.
	NonFinite NonFinite        `json:"non_finite,omitempty"`
	Gradients []string         `json:"gradients,omitempty"`
	Layouts   []stepAnnotation `json:"argument_annotations,omitempty"`
}

// stepTensor is a module.Placed.
type stepTensor struct {
	Name     string `json:"name"`
	Variable bool   `json:"variable,omitempty"`
	// Distributed is set for a variable that belongs to no store.
	Distributed *stepVariable `json:"distributed,omitempty"`
	DType       string        `json:"dtype"`
	Local       []int         `json:"local"`
	Global      []int         `json:"global"`
	Shard       []int         `json:"shard"`
	Spec        string        `json:"spec"`
	PerReplica  bool          `json:"per_replica,omitempty"`
	PerStep     bool          `json:"per_step,omitempty"`
	Ragged      bool          `json:"ragged,omitempty"` // an argument whose replicas differ in shape
	// Sizes are, of such an argument's dimensions, the padded size it has, or -1; Cut are
	// the padded dimensions of a result.
	Sizes      []int          `json:"padded_sizes,omitempty"`
	Cut        []ragged.Dim   `json:"padded,omitempty"`
	Annotation stepAnnotation `json:"annotation"`
	Donated    bool           `json:"donated,omitempty"`
	Result     int            `json:"result,omitempty"`
}

// stepAnnotation is a logical.Annotation.
type stepAnnotation struct {
	Kind   string `json:"kind"`
	Device int    `json:"device,omitempty"`
	Parts  []int  `json:"parts,omitempty"`
}

func annotationOut(a logical.Annotation) stepAnnotation {
	switch a.Kind() {
	case logical.KindAssign:
		return stepAnnotation{Kind: "assign", Device: a.Device()}
	case logical.KindReplicate:
		return stepAnnotation{Kind: "replicate"}
	case logical.KindSplit:
		return stepAnnotation{Kind: "split", Parts: a.Parts()}
	}
	return stepAnnotation{Kind: "none"}
}

func (a stepAnnotation) in() (logical.Annotation, error) {
	switch a.Kind {
	case "none":
		return logical.Annotation{}, nil
	case "assign":
		return logical.AssignTo(a.Device), nil
	case "replicate":
		return logical.Replicated(), nil
	case "split":
		return logical.SplitInto(a.Parts...), nil
	}
	return logical.Annotation{}, fmt.Errorf("annotation %q", a.Kind)
}

func tensorOut(p module.Placed, variable bool) stepTensor {
	return stepTensor{
		Name: p.Name, Variable: variable, DType: p.DType.String(), Local: p.Local, Global: p.Global, Shard: p.Shard,
		Spec: p.Spec.Shardy("mesh"), PerReplica: p.PerReplica, PerStep: p.PerStep, Annotation: annotationOut(p.Annotation), Donated: p.Donated, Result: p.Result,
	}
}

func (t stepTensor) in() (p module.Placed, err error) {
	p.Name, p.Local, p.Global, p.Shard = t.Name, t.Local, t.Global, t.Shard
	p.PerReplica, p.PerStep, p.Donated, p.Result = t.PerReplica, t.PerStep, t.Donated, t.Result
	if p.DType, err = dtypes.DTypeString(t.DType); err != nil {
		return p, fmt.Errorf("tensor %q: dtype %q", t.Name, t.DType)
	}
	if p.Annotation, err = t.Annotation.in(); err != nil {
		return p, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	if _, p.Spec, err = sharding.ParseShardy(t.Spec); err != nil {
		return p, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return p, nil
}

// Save writes the compiled step, for [TPUStrategy.LoadStep] in another process, on
// the same kind of devices with the same plugin build: ahead of time here, to run
// there. Values of variables are not part of it; they belong to checkpoints. The
// file names the variables, those of the store and distributed ones, and says what
// they are. A loop of steps (see [Stacked]) is saved with its number of steps. A step
// that [Options].Compiler found in a cache is compiled once more: what comes out of
// one cannot be written out again ([pjrt.ErrDeserialized]).
//
// Errors: [*StepFileError] with StepVariable if two distributed variables of the
// step have one name, with StepUnsupported if the runtime has no program to save;
// *[pjrt.Error] if the plugin cannot serialize; those of w.
func (c *Compiled) Save(w io.Writer) error {
	p, s := c.program, c.program.function.strategy
	if c.Program == nil {
		return &StepFileError{Reason: StepUnsupported, Detail: "the runtime gives no compiled program to save"}
	}
	if len(p.borrowed) > 0 {
		return &StepFileError{Reason: StepUnsupported, Variable: p.borrowed[0].path, Detail: "it is another strategy's"}
	}
	h := stepHeader{
		Version: stepVersion, Step: c.Name, Topology: s.assignment.Topology().Name(), Mesh: s.assignment.Topology().MeshShape(),
		IDs: s.assignment.DeviceIDs(), Coordinates: s.assignment.CoreAssignment(), Axes: c.Module.Mesh.Axes(), Updates: p.updates,
		SplitBatch: p.function.opts.SplitBatch, LocalBatch: p.function.opts.LocalBatch, Training: p.function.opts.Training,
		PadRagged: p.function.opts.PadRagged, Keep: p.function.opts.KeepPadding, Mirrored: p.function.opts.mirroredResults,
	}
	h.NonFinite, h.Gradients = p.function.opts.guard.header()
	var err error
	if h.Identity, h.Devices, err = s.identity(); err != nil {
		return err
	}
	if c.Module.Partitions == 1 {
		h.Replicas = c.Module.Replicas
	}
	next := 0
	for i, a := range c.Module.Arguments {
		t := tensorOut(a, p.variables[i] != nil)
		if err := s.saveVariable(p, i, &t); err != nil {
			return err
		}
		if a.PerStep {
			h.Steps = a.Global[0]
		}
		if !t.Variable {
			t.Ragged = p.ragged[next]
			if t.Ragged {
				t.Sizes = p.padding.of[next]
			}
			next++
		}
		h.Arguments = append(h.Arguments, t)
	}
	for j, r := range c.Module.Results {
		t := tensorOut(r, false)
		if j < len(p.cut) {
			t.Cut = p.cut[j]
		}
		h.Results = append(h.Results, t)
	}
	for _, a := range p.function.opts.Arguments {
		h.Layouts = append(h.Layouts, annotationOut(a))
	}
	program, err := p.serialize(c)
	if err != nil {
		return fmt.Errorf("strategy: saving %s: %w", c.Name, err)
	}
	data, err := encodeStep(h, c.Module.Text, program)
	if err != nil {
		return fmt.Errorf("strategy: saving %s: %w", c.Name, err)
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("strategy: saving %s: %w", c.Name, err)
	}
	return nil
}

// serialize writes the program out, as the compiler made it.
func (p *program) serialize(c *Compiled) ([]byte, error) {
	s := p.function.strategy
	if p.code != nil {
		return p.code, nil
	}
	code, err := c.Program.Serialize()
	if !errors.Is(err, pjrt.ErrDeserialized) {
		return code, err
	}
	// The compiler found it in a cache.
	x, err := s.sys.Client().Compile(context.Background(), pjrt.Lowered(p.module.Text, p.module.Facts()), s.compileOptions(p.module.Replicas))
	if err != nil {
		return nil, err
	}
	code, err = x.Executable().Serialize()
	return code, errors.Join(err, x.Close())
}

// inStore reports whether a variable is the store's.
func (s *TPUStrategy) inStore(store *model.Store, v *Variable) bool {
	if store == nil {
		return false
	}
	found, ok := s.Variables(store).Lookup(v.path)
	return ok && found == v
}

// identity names the plugin and the kind of devices of the strategy. Where a slice
// is described there is no client to ask: what both know is compared.
func (s *TPUStrategy) identity() (plugin, devices string, err error) {
	if s.slice != nil {
		plugin, err = cache.PluginIdentity(s.slice.Plugin(), "tpu", "")
		return plugin, s.slice.Facts().Kind, err
	}
	client := s.sys.Client()
	if client == nil {
		return "", "", &StepFileError{Reason: StepUnsupported, Detail: "the system has no client of a plugin"}
	}
	plugin, err = cache.PluginIdentity(client.Plugin(), client.PlatformName(), "")
	return plugin, s.devices[0].Kind(), err
}

func encodeStep(h stepHeader, text, program []byte) ([]byte, error) {
	header, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(stepMagic)
	for _, part := range [][]byte{header, text, program} {
		var size [8]byte
		binary.LittleEndian.PutUint64(size[:], uint64(len(part)))
		b.Write(size[:])
		b.Write(part)
	}
	sum := sha256.Sum256(b.Bytes())
	b.Write(sum[:])
	return b.Bytes(), nil
}

// decodeStep is the inverse of encodeStep. Errors are [*StepFileError].
func decodeStep(data []byte) (h stepHeader, text, program []byte, err error) {
	fail := func(reason StepReason, format string, args ...any) (stepHeader, []byte, []byte, error) {
		return stepHeader{}, nil, nil, &StepFileError{Reason: reason, Detail: fmt.Sprintf(format, args...)}
	}
	if !bytes.HasPrefix(data, []byte(stepMagic)) {
		return fail(StepNotAFile, "it does not begin as one")
	}
	if len(data) < len(stepMagic)+sha256.Size {
		return fail(StepDamaged, "it ends after %d bytes", len(data))
	}
	body, sum := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return fail(StepDamaged, "its checksum is wrong")
	}
	rest := body[len(stepMagic):]
	var parts [3][]byte
	for i := range parts {
		if len(rest) < 8 {
			return fail(StepDamaged, "part %d is missing", i)
		}
		n := binary.LittleEndian.Uint64(rest)
		if rest = rest[8:]; n > uint64(len(rest)) {
			return fail(StepDamaged, "part %d has %d bytes of %d", i, len(rest), n)
		}
		parts[i], rest = rest[:n], rest[n:]
	}
	if len(rest) > 0 {
		return fail(StepDamaged, "there is more after its end")
	}
	var version struct{ Version int }
	if err := json.Unmarshal(parts[0], &version); err != nil {
		return fail(StepDamaged, "its header: %v", err)
	}
	if version.Version != stepVersion {
		return fail(StepVersion, "it has version %d, this program reads %d", version.Version, stepVersion)
	}
	if err := json.Unmarshal(parts[0], &h); err != nil {
		return fail(StepDamaged, "its header: %v", err)
	}
	return h, parts[1], parts[2], nil
}

// The bounds of a step file's parts: a header has some hundred bytes a variable, and
// compilers neither take texts nor give programs of 2 GiB.
const (
	maxStepHeader = 256 << 20
	maxStepPart   = 2 << 30
)

// readStep reads a step file as far as its parts say it goes, so that what is none, and
// what has no end, is not read on. sum is the hash it must have, or "".
func readStep(r io.Reader, sum string) ([]byte, error) {
	var data bytes.Buffer
	take := func(n int64) error {
		got, err := io.CopyN(&data, r, n)
		if got < n && err == io.EOF {
			return nil // decodeStep says what is missing
		}
		if err != nil {
			return fmt.Errorf("strategy: reading a step: %w", err)
		}
		return nil
	}
	finish := func() ([]byte, error) {
		if sum == "" {
			return data.Bytes(), nil
		}
		hash := sha256.Sum256(data.Bytes())
		if found := hex.EncodeToString(hash[:]); !strings.EqualFold(found, sum) {
			return nil, &StepFileError{Reason: StepHash, Detail: fmt.Sprintf("its SHA-256 is %s, not %s", found, sum)}
		}
		return data.Bytes(), nil
	}
	if err := take(int64(len(stepMagic))); err != nil {
		return nil, err
	}
	if data.String() != stepMagic {
		return data.Bytes(), nil // decodeStep refuses it
	}
	for _, limit := range []uint64{maxStepHeader, maxStepPart, maxStepPart} {
		at := data.Len()
		if err := take(8); err != nil {
			return nil, err
		}
		if data.Len() < at+8 {
			return finish()
		}
		n := binary.LittleEndian.Uint64(data.Bytes()[at:])
		if n > limit {
			return nil, &StepFileError{Reason: StepDamaged, Detail: fmt.Sprintf("a part of it has %d bytes, at most %d are read", n, limit)}
		}
		if err := take(int64(n)); err != nil {
			return nil, err
		}
	}
	if err := take(sha256.Size + 1); err != nil { // one byte more shows that it goes on
		return nil, err
	}
	return finish()
}
