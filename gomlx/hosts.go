package gomlx

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// With several processes, each process runs the same GoMLX program and passes complete tensors, of
// which it transfers the shards of its own devices. Results are replicated, so that each process
// can read them, except the next values of variables, which keep their sharding. To read a tensor
// with shards on other processes, all processes launch a program that gathers it. The text of a
// program and the first value of a variable must be the same on all processes, so they are compared
// at their first use.

// replicate copies a tensor that is sharded over the processes to all devices, by an all-gather.
// All processes must call it.
func (b *Backend) replicate(src *placement, shape shapes.Shape) (*placement, error) {
	if src.layout.Spec == nil {
		return nil, layoutError("processes hold parts of it, and no rule says which", nil)
	}
	key := fmt.Sprint(shape, *src.layout.Spec)
	b.gatherMu.Lock()
	defer b.gatherMu.Unlock()
	v, ok := b.gatherPrograms[key]
	if !ok {
		var err error
		if v, err = b.compileGather(shape, *src.layout.Spec); err != nil {
			return nil, err
		}
		if b.gatherPrograms == nil {
			b.gatherPrograms = map[string]*variant{}
		}
		b.gatherPrograms[key] = v
	}
	args, results := engine.NewBufferTable(len(v.partitions), 1), engine.NewBufferTable(len(v.partitions), 1)
	for row, d := range v.partitions {
		args[row][0] = src.Buffers[d]
	}
	if err := b.launch(v, args, results, nil); err != nil {
		return nil, err
	}
	return &placement{layout: v.results[0], Buffers: b.runtime.TableColumn(results, v.partitions, 0)}, nil
}

// compileGather compiles a program that replicates its argument on all devices.
func (b *Backend) compileGather(shape shapes.Shape, spec sharding.Spec) (*variant, error) {
	builder := lowering.New(lowering.Options{Target: lowering.TargetTPU, Partitioned: true}).Builder("whole")
	x, err := builder.Main().Parameter("x", shape, nil)
	if err != nil {
		return nil, err
	}
	if err := builder.Main().Return([]compute.Value{x}, nil); err != nil {
		return nil, err
	}
	lowered, err := builder.Compile()
	if err != nil {
		return nil, err
	}
	m, err := spmd.AssembleGlobal(lowered.(*lowering.Executable).Program(),
		spmd.GlobalSignature{Mesh: b.mesh, Logical: b.logical,
			Arguments: []spmd.GlobalTensor{{Name: "x", Spec: spec}}, Results: []spmd.GlobalTensor{{Name: "x",
				Spec: sharding.Replicated(shape.Rank())}}})
	if err != nil {
		return nil, err
	}
	v := &variant{module: m}
	if err := v.compile(b, "whole", m.Text, b.runtime.Options(1)); err != nil {
		return nil, err
	}
	if err := b.resources.Track(v.exe); err != nil {
		return nil, err
	}
	return v, v.setLayouts(b, spmd.GlobalSignature{Results: make([]spmd.GlobalTensor, 1)})
}

// checkAgreement returns an error if the processes pass different data. The error contains what, a
// name of the data, and hint.
func (b *Backend) checkAgreement(what, hint string, data []byte) error {
	err := b.runtime.CheckAgreement(b.runtime.Context, what, "", data)
	if mismatch := (*MismatchError)(nil); errors.As(err, &mismatch) {
		mismatch.Hint = hint
	}
	return err
}

// compareVariables returns an error if the variables that this execution transfers from the host
// differ between processes. It first compares one hash of all variables. If the hashes differ, it
// compares each variable, to name it in the error.
func (e *Executable) compareVariables(inputs []compute.Buffer) error {
	b, p := e.backend, e.state.program
	if !b.runtime.IsMultiProcess() {
		return nil
	}
	var fromHost []int
	var sum []byte
	value := func(i int) []byte {
		h := inputs[i].(*Buffer).state
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.host
	}
	for i, name := range p.ParameterNames {
		if host := value(i); isVariable(name) && host != nil {
			fromHost = append(fromHost, i)
			digest := sha256.Sum256(host)
			sum = append(sum, digest[:]...)
		}
	}
	if len(fromHost) == 0 {
		return nil
	}
	const hint = "give each process the same seed (model.ParamInitialSeed), checkpoint and data"
	err := b.checkAgreement("variables", hint, sum)
	if mismatch := (*MismatchError)(nil); !errors.As(err, &mismatch) {
		return err
	}
	for _, i := range fromHost {
		if err := b.checkAgreement(fmt.Sprintf("variable %q", p.ParameterNames[i]), hint, value(i)); err != nil {
			return err
		}
	}
	return err
}
