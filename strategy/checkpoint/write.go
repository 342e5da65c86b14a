package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/internal/safetensors"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// describe fills in the manifest's variables.
func describe(g Group, m *manifest) ([]safetensors.Spec, error) {
	specs := make([]safetensors.Spec, len(g.Variables))
	m.Variables = make([]savedVariable, len(g.Variables))
	paths, names := map[string]bool{}, map[string]bool{}
	var errs []error
	for i, v := range g.Variables {
		if v == nil {
			return nil, nilVariable("save", i)
		}
		path := v.Path()
		if paths[path] || strings.TrimPrefix(path, "/") == "" {
			errs = append(errs, &VariableError{Path: path, Reason: "the path is empty, or there twice", Hint: "give each variable a path of its own"})
			continue
		}
		paths[path] = true
		name := tensorName(path, names)
		synchronization, aggregation, err := rules(v)
		errs = append(errs, err)
		saved := savedVariable{Path: path, Tensor: name, Trainable: true, Synchronization: synchronization.String(), Aggregation: aggregation.String()}
		if t, ok := v.(interface{ Trainable() bool }); ok {
			saved.Trainable = t.Trainable()
		}
		m.Variables[i] = saved
		if specs[i], err = specOf(path, name, v.Shape()); err != nil {
			errs = append(errs, err)
		}
	}
	if _, ok := m.Metadata[metadataStep]; ok {
		errs = append(errs, wrong("save", "use another name", "metadata entry %q is reserved", metadataStep))
	}
	return specs, errors.Join(errs...)
}

// tensorName is the name of a variable's tensor: its path without the first slash. A variable of a
// scope may have the name of one of the store, as "global_step" and "/global_step": the later one's
// tensor is "global_step_2".
func tensorName(path string, names map[string]bool) string {
	first := strings.TrimPrefix(path, "/")
	name := first
	for n := 2; names[name]; n++ {
		name = fmt.Sprintf("%s_%d", first, n)
	}
	names[name] = true
	return name
}

// writeVariables streams the tensor file and notes its checksums in the manifest.
func writeVariables(ctx context.Context, to io.Writer, m *manifest, r *reading) error {
	w := &summing{w: to}
	metadata := map[string]string{metadataStep: fmt.Sprint(m.Step)}
	maps.Copy(metadata, m.Metadata)
	file, err := safetensors.NewWriter(w, r.specs, metadata)
	if err != nil {
		return err
	}
	m.HeaderBytes, m.HeaderCRC32C = w.bytes, w.sum
	for r.more() {
		i, t := r.now()
		saved := &m.Variables[i]
		value, err := r.read(ctx)
		if err != nil {
			return &VariableError{Path: saved.Path, Reason: "not read", Err: err}
		}
		if got, err := specOf(saved.Path, t.Name, value.Shape()); err != nil || got.DType != t.DType || !slices.Equal(got.Shape, t.Shape) {
			return &VariableError{Path: saved.Path, Reason: fmt.Sprintf("its value is %s, its shape was %s", value.Shape(), r.group[i].Shape())}
		}
		if t.Bytes == 0 {
			continue
		}
		var failed error
		err = value.ConstBytes(func(data []byte) {
			for piece := range slices.Chunk(data, pieceBytes) {
				if failed = ctx.Err(); failed == nil {
					failed = file.Write(t.Name, piece)
				}
				if failed != nil {
					return
				}
				saved.CRC32C = saved.CRC32C.plus(piece)
			}
		})
		if err = errors.Join(err, failed); err != nil {
			return &VariableError{Path: saved.Path, Reason: "not written", Err: err}
		}
	}
	m.Bytes, m.CRC32C = w.bytes, w.sum
	return file.Finish()
}

// reading is the order in which a group's variables are read for a save, and how far it has come.
// Where processes share a strategy, reading a variable may take all of them, so that they read in
// the same order and to the end.
type reading struct {
	group  []Variable
	specs  []safetensors.Spec
	layout []safetensors.Info
	places map[string]int // of tensors in the group
	next   int            // in layout
}

// newReading describes the group's variables in a manifest.
func newReading(g Group, m *manifest) (*reading, error) {
	r := &reading{group: g.Variables, places: map[string]int{}}
	var err error
	if r.specs, err = describe(g, m); err != nil {
		return nil, err
	}
	for i, s := range r.specs {
		r.places[s.Name] = i
	}
	if r.layout, err = safetensors.Layout(r.specs); err != nil {
		return nil, doing("lay out tensors", "", err)
	}
	return r, nil
}

func (r *reading) more() bool { return r.next < len(r.layout) }

// now is the next variable's place in the group, and its tensor.
func (r *reading) now() (int, safetensors.Info) {
	t := r.layout[r.next]
	return r.places[t.Name], t
}

// read reads the next variable.
func (r *reading) read(ctx context.Context) (*tensors.Tensor, error) {
	i, _ := r.now()
	r.next++
	return r.group[i].SaveValue(ctx)
}

// drain reads what is left, after a failure of this process alone.
func (r *reading) drain(ctx context.Context) {
	shared := slices.ContainsFunc(r.group, func(v Variable) bool {
		of, ok := v.(interface{ Strategy() *strategy.TPUStrategy })
		return ok && of.Strategy().NumProcesses() > 1
	})
	for shared && r.more() && ctx.Err() == nil {
		_, _ = r.read(ctx)
	}
}

// Follow takes part in a save that another process makes of the same group: it reads the variables
// in the same order and writes nothing. One of the processes that share a strategy calls
// [Directory.Save], and all others call Follow at the same point of the program.
func Follow(ctx context.Context, g Group) error {
	r, err := newReading(g, &manifest{})
	if err != nil {
		return err
	}
	for r.more() {
		i, _ := r.now()
		if _, err := r.read(ctx); err != nil {
			return &VariableError{Path: r.group[i].Path(), Reason: "not read", Err: err}
		}
	}
	return nil
}
