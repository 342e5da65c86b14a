package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/internal/safetensors"
)

// exportBytes is what an export holds in memory at a time, or one row that is larger.
const exportBytes = 32 << 20

// Export writes the checkpoint's variables as one safetensors file: a tensor's name is the
// variable's path without the first slash, and the header holds the step and the metadata. The file is written whole or not at all, in the place of one that is there, and
// every byte is compared with its checksum on the way. [OpenFile] opens it.
func (c *Checkpoint) Export(ctx context.Context, path string) error {
	if c.objects == nil {
		return errNotOpened
	}
	if err := files.Local(path); err != nil {
		return doing("export", "", err)
	}
	specs := make([]safetensors.Spec, len(c.variables))
	byName, names := map[string]*savedParts{}, map[string]bool{}
	for i := range c.variables {
		v := &c.variables[i]
		name := tensorName(v.Path, names)
		var err error
		if specs[i], err = specOf(v.Path, name, v.Shape); err != nil {
			return err
		}
		byName[name] = c.parts(v)
	}
	metadata := map[string]string{}
	maps.Copy(metadata, c.metadata)
	if c.step >= 0 {
		metadata[metadataStep] = fmt.Sprint(c.step)
	}
	layout, err := safetensors.Layout(specs)
	if err != nil {
		return doing("export", path, err)
	}
	f, err := safetensors.Create(path, specs, metadata)
	if err != nil {
		return doing("export", path, err)
	}
	for _, t := range layout {
		if err == nil && t.Bytes > 0 {
			err = byName[t.Name].copyTo(ctx, func(p []byte) error { return f.Write(t.Name, p) })
		}
	}
	if err == nil {
		err = f.Commit()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return doing("export", path, err)
	}
	return nil
}

// copyTo reads the variable from its first element to its last, some rows at a time.
func (p *savedParts) copyTo(ctx context.Context, write func([]byte) error) error {
	dims := p.variable.Shape.Dimensions
	start, size := make([]int, len(dims)), append([]int(nil), dims...)
	rows, each := 1, p.variable.bytes
	if len(dims) > 0 {
		each = p.variable.bytes / int64(dims[0])
		rows = dims[0]
	}
	some := int(min(int64(rows), max(1, exportBytes/max(each, 1))))
	memory := make([]byte, int64(some)*each)
	for at := 0; at < rows; at += some {
		n := min(some, rows-at)
		if len(dims) > 0 {
			start[0], size[0] = at, n
		}
		part := memory[:int64(n)*each]
		if err := p.ReadPart(ctx, start, size, part); err != nil {
			return err
		}
		if err := write(part); err != nil {
			return err
		}
	}
	return nil
}
