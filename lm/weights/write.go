package weights

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/internal/safetensors"
)

// WriteOptions configure the files that are written.
type WriteOptions struct {
	// MaxFileBytes is the maximum number of data bytes in a file; a larger tensor gets a file of
	// its own. 0 means 5 GB, as in Hugging Face's programs.
	MaxFileBytes int64
	// Metadata is written to each file. If it has no "format", the value "pt" is added, which other
	// programs expect.
	Metadata map[string]string
}

const defaultFileBytes = 5_000_000_000

// Write writes the tensors of a plan to a directory. It applies the rules in the reverse direction,
// so that a plan of the same tensors and rules reads the same variables again. It writes one file
// [SingleName], or several files and, last, [IndexName]. value must return a variable's elements,
// row-major, and is called once for each variable. The values of all variables are in memory at the
// same time.
//
// tensors are the tensors of the plan in the order in which they are written, for example
// [File.Tensors]. A tensor that the rules ignore is an error. The constant Add of a target is
// subtracted, in float64. Numbers are rounded to the tensor's dtype; a finite number that becomes
// infinite is an error.
//
// Write creates the directory and its parents. A directory that contains weights is an error.
func (p *Plan) Write(ctx context.Context, dir string, tensors []Tensor,
	value func(ctx context.Context, v Variable) ([]byte, error), opts WriteOptions) error {
	maxBytes := cmp.Or(opts.MaxFileBytes, defaultFileBytes)
	meta := map[string]string{}
	maps.Copy(meta, opts.Metadata)
	meta["format"] = cmp.Or(meta["format"], "pt")
	for _, name := range []string{SingleName, IndexName} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fileError(filepath.Join(dir, name), "", errkind.Fault{Reason: "the directory already contains weights",
				Hint: "name another directory", Class: errkind.ValueError, Err: fs.ErrExist})
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fileError(dir, "", errkind.Fault{Reason: "cannot create the directory", Err: err})
	}
	w := &weightWriter{plan: p, pieces: map[string][]variablePiece{}, values: map[string][]byte{}, value: value}
	for _, v := range p.variables {
		for _, piece := range v.boxes {
			w.pieces[piece.tensor] = append(w.pieces[piece.tensor], variablePiece{v.Variable, piece})
		}
	}
	var groups [][]safetensors.Spec
	total, used := int64(0), int64(0)
	for _, t := range tensors {
		if len(w.pieces[t.Name]) == 0 {
			return fileError(dir, t.Name, errkind.Fault{Reason: "no variable contains it", Hint: "leave it out",
				Class: errkind.ValueError})
		}
		spec := safetensors.Spec{Name: t.Name, DType: safetensors.DType(t.DType), Shape: t.Shape}
		bytes, err := spec.Bytes()
		if err != nil {
			return fileError(dir, t.Name, errkind.Fault{Reason: "not written", Err: err})
		}
		if len(groups) == 0 || used > 0 && used+bytes > maxBytes {
			groups, used = append(groups, nil), 0
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], spec)
		used, total = used+bytes, total+bytes
	}
	index := map[string]string{}
	for i, specs := range groups {
		name := SingleName
		if len(groups) > 1 {
			name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(groups))
		}
		if err := w.write(ctx, filepath.Join(dir, name), specs, meta); err != nil {
			return err
		}
		for _, s := range specs {
			index[s.Name] = name
		}
	}
	if len(groups) < 2 {
		return nil
	}
	return writeIndex(dir, index, total)
}

func writeIndex(dir string, index map[string]string, total int64) error {
	err := files.Replace(filepath.Join(dir, IndexName), func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{"metadata": map[string]any{"total_size": total}, "weight_map": index})
	})
	if err != nil {
		return fileError(filepath.Join(dir, IndexName), "", errkind.Fault{Reason: "not written", Err: err})
	}
	return nil
}

type weightWriter struct {
	plan   *Plan
	pieces map[string][]variablePiece // by tensor
	values map[string][]byte          // by variable
	value  func(ctx context.Context, v Variable) ([]byte, error)
}

type variablePiece struct {
	Variable
	variableBox
}

func (w *weightWriter) write(ctx context.Context, path string, specs []safetensors.Spec, meta map[string]string) error {
	tensor := "" // the tensor that caused an error
	err := safetensors.WriteFile(path, specs, meta, func(t safetensors.Info, dst io.Writer) error {
		tensor = t.Name
		data, err := w.tensor(ctx, t)
		if err == nil {
			_, err = dst.Write(data)
		}
		if err == nil {
			tensor = ""
		}
		return err
	})
	if err != nil {
		return fileError(path, tensor, errkind.Fault{Reason: "not written", Err: err})
	}
	return nil
}

// tensor assembles a tensor from the variables that contain its elements.
func (w *weightWriter) tensor(ctx context.Context, t safetensors.Info) ([]byte, error) {
	data := make([]byte, t.Bytes)
	for _, piece := range w.pieces[t.Name] {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if _, ok := w.values[piece.Path]; !ok {
			value, err := w.value(ctx, piece.Variable)
			if err != nil {
				return nil, err
			}
			if len(value) != int(piece.DType.Size())*numElements(piece.Shape) {
				return nil, &errkind.Fault{Reason: fmt.Sprintf("%d bytes for variable %q of %s%v", len(value), piece.Path,
					piece.DType, piece.Shape), Class: errkind.ValueError}
			}
			w.values[piece.Path] = value
		}
		if err := w.fill(data, t, piece); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// fill copies a box of a variable to its tensor.
func (w *weightWriter) fill(data []byte, t safetensors.Info, piece variablePiece) error {
	form, err := newConversion(string(safetensors.FromGoMLX(piece.DType)), t.DType.GoMLX(), -piece.add)
	if err != nil {
		return err
	}
	j, err := w.plan.newCopyJob(&piece.Variable, piece.variableBox, make([]int, len(piece.Shape)), piece.Shape,
		singleCell(len(piece.Shape)))
	if err != nil {
		return err
	}
	value, fast := w.values[piece.Path], &j.axes[len(j.axes)-1]
	return j.forEachRow(func(r rowOffsets) error {
		for i := range fast.n {
			if !form.convert(data, int(r.src+fast.srcAt(i)), 1, value, r.dst+fast.dstAt(i), 1) {
				return &errkind.Fault{Reason: fmt.Sprintf("a number of variable %q is too large for %s", piece.Path, t.DType),
					Class: errkind.ValueError,
					Hint:  "write the tensor as F32 or BF16"}
			}
		}
		return nil
	})
}
