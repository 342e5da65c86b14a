package checkpoint

import (
	"context"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/internal/engine/savedstep"
	"github.com/tpustrategy/tpustrategy/internal/safetensors"
	"github.com/tpustrategy/tpustrategy/logical"
)

// exportBufferSize is the size in bytes of an export's buffer, unless one row of a variable is larger.
const exportBufferSize = 32 << 20

// ExportOptions selects the variables for [Checkpoint.Export]. The zero value selects the model.
type ExportOptions struct {
	// All also writes the metadata and the variables that [Checkpoint.Weights] excludes.
	All bool
}

// Export writes variables to one safetensors file, which [OpenFile] can open. A tensor's name is the
// variable's path without the first slash. The header contains the step. The file is written atomically
// and replaces an existing file. Export verifies the checksums of all bytes that it reads.
func (c *Checkpoint) Export(ctx context.Context, path string, opts ExportOptions) error {
	if c.objects == nil {
		return errNotOpened
	}
	weights := map[string]bool{}
	for _, path := range c.Weights() {
		weights[path] = true
	}
	var specs []safetensors.Spec
	byName, names := map[string]*variableReader{}, map[string]bool{}
	for i := range c.variables {
		v := &c.variables[i]
		if !opts.All && !weights[v.Path] {
			continue
		}
		name := tensorName(v.Path, names)
		spec, err := tensorSpec(v.Path, name, v.Shape)
		if err != nil {
			return err
		}
		specs, byName[name] = append(specs, spec), c.newReader(v)
	}
	metadata := map[string]string{}
	if opts.All {
		maps.Copy(metadata, c.metadata)
	}
	if c.step >= 0 {
		metadata[metadataStep] = fmt.Sprint(c.step)
	}
	err := safetensors.WriteFile(path, specs, metadata,
		func(t safetensors.Info, w io.Writer) error { return byName[t.Name].writeTo(ctx, w) })
	if err != nil {
		return wrapError("export", path, err)
	}
	return nil
}

// writeTo writes the variable's elements to w in row-major order. It uses a small buffer and does
// not read the complete variable at once.
func (r *variableReader) writeTo(ctx context.Context, w io.Writer) error {
	dims := r.variable.Shape.Dimensions
	start, size := make([]int, len(dims)), append([]int(nil), dims...)
	rows, rowBytes := 1, r.variable.bytes
	if len(dims) > 0 {
		rowBytes = r.variable.bytes / int64(dims[0])
		rows = dims[0]
	}
	rowsPerRead := int(min(int64(rows), max(1, exportBufferSize/max(rowBytes, 1))))
	buf := make([]byte, int64(rowsPerRead)*rowBytes)
	for row := 0; row < rows; row += rowsPerRead {
		n := min(rowsPerRead, rows-row)
		if len(dims) > 0 {
			start[0], size[0] = row, n
		}
		data := buf[:int64(n)*rowBytes]
		if err := r.ReadPart(ctx, start, size, data); err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// trainingScopes lists the variables and scopes at a store's root that GoMLX's optimizers and package
// train create. They are not part of a model.
var trainingScopes = []string{model.RNGStateVariableName, optimizer.GlobalStepVariableName, optimizer.Scope,
	"trainer", "acc_grads", "averages", "loss_scale", "non_finite"}

// Weights returns the paths of the model's variables, in the checkpoint's order. It excludes moving
// averages, metrics, step counters, random number state, and the moments and counters of
// optimizers. It recognizes the latter by GoMLX's names.
func (c *Checkpoint) Weights() (paths []string) {
	root := func(path string) string {
		scope, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		return scope
	}
	trainingScope := map[string]bool{}
	for _, scope := range trainingScopes {
		trainingScope[scope] = true
	}
	for _, v := range c.variables {
		if logical.OwnerOfState(v.Path, nil) != "" { // the same scope contains the optimizer's counters
			trainingScope[root(v.Path)] = true
		}
	}
	for _, v := range c.variables {
		if !trainingScope[root(v.Path)] && !savedstep.IsMetricStateName(v.Path) {
			paths = append(paths, v.Path)
		}
	}
	return paths
}
