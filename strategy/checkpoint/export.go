package checkpoint

import (
	"context"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/internal/engine/saved"
	"github.com/tpustrategy/tpustrategy/internal/safetensors"
	"github.com/tpustrategy/tpustrategy/logical"
)

// exportBytes is the size of an export's buffer, unless one row is larger.
const exportBytes = 32 << 20

// ExportOptions selects the variables that [Checkpoint.Export] writes. The zero value selects the
// model.
type ExportOptions struct {
	// All also writes the variables that are not part of the model (see [Checkpoint.Weights]), and
	// the metadata.
	All bool
}

// Export writes variables to one safetensors file, which [OpenFile] can open. A tensor's name is
// the variable's path without the first slash. The header contains the step. The file is written
// atomically and replaces an existing file. Export verifies the checksums of all bytes that it
// reads.
func (c *Checkpoint) Export(ctx context.Context, path string, opts ExportOptions) error {
	if c.objects == nil {
		return errNotOpened
	}
	weights := map[string]bool{}
	for _, path := range c.Weights() {
		weights[path] = true
	}
	var specs []safetensors.Spec
	byName, names := map[string]*source{}, map[string]bool{}
	for i := range c.variables {
		v := &c.variables[i]
		if !opts.All && !weights[v.Path] {
			continue
		}
		name := tensorName(v.Path, names)
		spec, err := specOf(v.Path, name, v.Shape)
		if err != nil {
			return err
		}
		specs, byName[name] = append(specs, spec), c.parts(v)
	}
	metadata := map[string]string{}
	if opts.All {
		maps.Copy(metadata, c.metadata)
	}
	if c.step >= 0 {
		metadata[metadataStep] = fmt.Sprint(c.step)
	}
	err := safetensors.WriteFile(path, specs, metadata, func(t safetensors.Info, w io.Writer) error { return byName[t.Name].copyTo(ctx, w) })
	if err != nil {
		return doing("export", path, err)
	}
	return nil
}

// copyTo writes the variable to w, a block of rows at a time.
func (p *source) copyTo(ctx context.Context, w io.Writer) error {
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
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// ofRun lists the names and scopes at a store's root that are not part of the model: those of GoMLX
// and those of package train.
var ofRun = []string{model.RNGStateVariableName, optimizer.GlobalStepVariableName, optimizer.Scope, "trainer", "acc_grads", "averages", "loss_scale", "non_finite"}

// Weights returns the paths of the model's variables, in the checkpoint's order. It excludes
// moments and counters of optimizers, which it recognizes by GoMLX's names, moving averages,
// metrics, step counters, and random number state.
func (c *Checkpoint) Weights() (paths []string) {
	root := func(path string) string {
		scope, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		return scope
	}
	run := map[string]bool{}
	for _, scope := range ofRun {
		run[scope] = true
	}
	for _, v := range c.variables {
		if logical.OwnerOfState(v.Path, nil) != "" { // the same scope contains the optimizer's counters
			run[root(v.Path)] = true
		}
	}
	for _, v := range c.variables {
		if !run[root(v.Path)] && !saved.IsStateName(v.Path) {
			paths = append(paths, v.Path)
		}
	}
	return paths
}
