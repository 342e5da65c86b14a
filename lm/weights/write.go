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

// WriteOptions configure [Plan.Write].
type WriteOptions struct {
	// MaxFileBytes is the maximum number of data bytes in a file; a larger tensor gets a file of
	// its own. 0 means 5 GB, as in Hugging Face's programs.
	MaxFileBytes int64
	// Metadata is written to each file. If it has no "format", the value "pt" is added, which other
	// programs expect.
	Metadata map[string]string
}

const defaultFileBytes = 5_000_000_000

// Write writes the tensors of a plan to a directory, so that reading them with the same rules
// returns the same variables. It writes one file [SingleName], or several files and then
// [IndexName]. value must return the elements of a variable, row-major. It is called once for each
// variable, and Write keeps all results in memory.
//
// tensors are the tensors of the plan in the order in which they are written, for example
// [File.Tensors]. A tensor that the rules ignore is an error. The constant Add of a target is
// subtracted, in float64. Numbers are rounded to the tensor's dtype. A finite number that becomes
// infinite is an error.
//
// Write creates the directory and its parents. A directory with weights is an error.
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
	w := &weightWriter{plan: p, boxes: map[string][]sourceBox{}, values: map[string][]byte{}, readValue: value}
	for _, v := range p.variables {
		for _, piece := range v.boxes {
			w.boxes[piece.tensor] = append(w.boxes[piece.tensor], sourceBox{v.Variable, piece})
		}
	}
	var groups [][]safetensors.Spec
	total, used := int64(0), int64(0)
	for _, t := range tensors {
		if len(w.boxes[t.Name]) == 0 {
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
		if err := w.writeFile(ctx, filepath.Join(dir, name), specs, meta); err != nil {
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
	plan      *Plan
	boxes     map[string][]sourceBox // by tensor
	values    map[string][]byte      // by variable
	readValue func(ctx context.Context, v Variable) ([]byte, error)
}

type sourceBox struct {
	Variable
	variableBox
}

func (w *weightWriter) writeFile(ctx context.Context, path string, specs []safetensors.Spec,
	meta map[string]string) error {
	tensor := "" // the tensor that caused an error
	err := safetensors.WriteFile(path, specs, meta, func(t safetensors.Info, dst io.Writer) error {
		tensor = t.Name
		data, err := w.assembleTensor(ctx, t)
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

// assembleTensor returns the bytes of a tensor, collected from the variables that it fills.
func (w *weightWriter) assembleTensor(ctx context.Context, t safetensors.Info) ([]byte, error) {
	data := make([]byte, t.Bytes)
	for _, piece := range w.boxes[t.Name] {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if _, ok := w.values[piece.Path]; !ok {
			value, err := w.readValue(ctx, piece.Variable)
			if err != nil {
				return nil, err
			}
			if len(value) != int(piece.DType.Size())*numElements(piece.Shape) {
				return nil, &errkind.Fault{Reason: fmt.Sprintf("%d bytes for variable %q of %s%v", len(value), piece.Path,
					piece.DType, piece.Shape), Class: errkind.ValueError}
			}
			w.values[piece.Path] = value
		}
		if err := w.copyBox(data, t, piece); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// copyBox copies a box of a variable to the bytes of its tensor.
func (w *weightWriter) copyBox(data []byte, t safetensors.Info, piece sourceBox) error {
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
		for i := range fast.count {
			if !form.convert(data, int(r.src+fast.srcAt(i)), 1, value, r.dst+fast.dstAt(i), 1) {
				return &errkind.Fault{Reason: fmt.Sprintf("a number of variable %q is too large for %s", piece.Path, t.DType),
					Class: errkind.ValueError,
					Hint:  "write the tensor as F32 or BF16"}
			}
		}
		return nil
	})
}
