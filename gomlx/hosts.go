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
// which it transfers the parts of its own devices. Results are replicated, so that each process can
// read them, except the next values of variables, which keep their sharding. To read a tensor with
// parts on other processes, all processes launch a program that gathers it. The text of a program
// and the first value of a variable must be the same on all processes, so they are compared at
// their first use.

// everywhere replicates a tensor on all devices. All processes must call it.
func (b *Backend) everywhere(l *placement, shape shapes.Shape) (*placement, error) {
	if l.layout.Spec == nil {
		return nil, unknown("processes hold parts of it, and no rule says which", nil)
	}
	key := fmt.Sprint(shape, *l.layout.Spec)
	b.gathering.Lock()
	defer b.gathering.Unlock()
	v, ok := b.gathers[key]
	if !ok {
		var err error
		if v, err = b.gatherer(shape, *l.layout.Spec); err != nil {
			return nil, err
		}
		if b.gathers == nil {
			b.gathers = map[string]*variant{}
		}
		b.gathers[key] = v
	}
	args, results := engine.Table(len(v.rows), 1), engine.Table(len(v.rows), 1)
	for row, d := range v.rows {
		args[row][0] = l.Buffers[d]
	}
	if err := b.launch(v, args, results, nil); err != nil {
		return nil, err
	}
	return &placement{layout: v.results[0], Buffers: b.runtime.Column(results, v.rows, 0)}, nil
}

// gatherer compiles a program that replicates its argument on all devices.
func (b *Backend) gatherer(shape shapes.Shape, from sharding.Spec) (*variant, error) {
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
	m, err := spmd.AssembleGlobal(lowered.(*lowering.Executable).Program(), spmd.GlobalSignature{Mesh: b.mesh, Logical: b.logical,
		Arguments: []spmd.TensorPlacement{{Name: "x", Spec: from}}, Results: []spmd.TensorPlacement{{Name: "x", Spec: sharding.Replicated(shape.Rank())}}})
	if err != nil {
		return nil, err
	}
	v := &variant{module: m}
	if err := v.load(b, "whole", m.Text, b.runtime.Options(1)); err != nil {
		return nil, err
	}
	if err := b.holds.Track(v.exe); err != nil {
		return nil, err
	}
	return v, v.lay(b, spmd.GlobalSignature{Results: make([]spmd.TensorPlacement, 1)})
}

// agree returns an error if data differs between processes. what names the data in the error.
func (b *Backend) agree(what, hint string, data []byte) error {
	err := b.runtime.Agree(b.runtime.Life, what, "", data)
	if mismatch := (*MismatchError)(nil); errors.As(err, &mismatch) {
		mismatch.Hint = hint
	}
	return err
}

// agreeOn compares the variables that this execution transfers from the host between processes. It
// compares one hash of all of them first, and if that differs, each variable, to name it in the
// error.
func (e *Executable) agreeOn(inputs []compute.Buffer) error {
	b, p := e.backend, e.state.program
	if !b.runtime.Several() {
		return nil
	}
	var fresh []int
	var sum []byte
	value := func(i int) []byte {
		h := inputs[i].(*Buffer).memory
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.host
	}
	for i, name := range p.ParameterNames {
		if host := value(i); isVariable(name) && host != nil {
			fresh = append(fresh, i)
			part := sha256.Sum256(host)
			sum = append(sum, part[:]...)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	const hint = "give each process the same seed (model.ParamInitialSeed), checkpoint and data"
	err := b.agree("variables", hint, sum)
	if mismatch := (*MismatchError)(nil); !errors.As(err, &mismatch) {
		return err
	}
	for _, i := range fresh {
		if err := b.agree(fmt.Sprintf("variable %q", p.ParameterNames[i]), hint, value(i)); err != nil {
			return err
		}
	}
	return err
}
