package global

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/module"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Over several processes each of them runs the same GoMLX program and gives the whole of each
// tensor; it feeds the parts of its own devices. Results are whole on each device, so that a process
// reads them by itself, except the next values of variables, which stay as they were. A tensor of
// which other processes hold parts is read by a program that makes it whole, which all of them
// launch. What processes would silently differ in, a program's text and a variable's first value, is
// compared when it is first used.

// hosts is what a backend over several processes has besides.
type hosts struct {
	mu     sync.Mutex
	movers map[string]*variant // the programs that make tensors whole, by dtype, shape and layout
	votes  *variant            // the program that shows each process what all have
}

// several reports whether the devices are those of several processes.
func (b *Backend) several() bool { return b.sys != nil && b.sys.NumProcesses() > 1 }

// covered reports whether the devices of this process hold all of a tensor.
func (b *Backend) covered(at *layout) bool {
	if at.whole() || len(b.mine) == len(b.devices) {
		return true
	}
	have := map[int]bool{}
	for _, partition := range b.mine {
		have[at.first[partition]] = true
	}
	for _, first := range at.first {
		if !have[first] {
			return false
		}
	}
	return true
}

// everywhere makes a tensor whole on each device. All processes call it.
func (b *Backend) everywhere(l *laid, shape shapes.Shape) (*laid, error) {
	if l.layout.spec == nil {
		return nil, unknown("processes hold parts of it, and no rule says which", nil)
	}
	key := fmt.Sprint(shape, l.layout.key)
	b.hosts.mu.Lock()
	defer b.hosts.mu.Unlock()
	v, ok := b.hosts.movers[key]
	if !ok {
		var err error
		if v, err = b.mover("whole", shape, *l.layout.spec, sharding.Replicated(shape.Rank())); err != nil {
			return nil, err
		}
		if b.hosts.movers == nil {
			b.hosts.movers = map[string]*variant{}
		}
		b.hosts.movers[key] = v
	}
	return b.move(v, l.parts)
}

// mover compiles a program that returns its argument in another layout.
func (b *Backend) mover(name string, shape shapes.Shape, from, to sharding.Spec) (*variant, error) {
	builder := lowering.New(lowering.Options{Target: lowering.TargetTPU, Partitioned: true}).Builder(name)
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
	m, err := module.Global(lowered.(*lowering.Lowered).Program(), module.Frame{Mesh: b.mesh, Logical: b.logical,
		Arguments: []module.Border{{Name: "x", Spec: from}}, Results: []module.Border{{Name: "x", Spec: to}}})
	if err != nil {
		return nil, err
	}
	v := &variant{module: m}
	if v.exe, err = b.load(m); err != nil {
		return nil, err
	}
	if err := b.holds.Track(v.exe); err != nil {
		return nil, err
	}
	return v, v.lay(b, module.Frame{Results: make([]module.Border, 1)})
}

// move runs such a program.
func (b *Backend) move(v *variant, parts []*pjrt.Buffer) (*laid, error) {
	args, results := rows(len(b.mine), 1), rows(len(b.mine), 1)
	for d := range b.mine {
		args[d][0] = parts[d]
	}
	b.launch.Lock()
	err := v.exe.Execute(context.Background(), args, results, pjrt.ExecuteOptions{})
	b.launch.Unlock()
	if err != nil {
		return nil, err
	}
	l := &laid{layout: v.results[0]}
	for d := range b.mine {
		l.parts = append(l.parts, results[d][0])
	}
	return l, nil
}

// digest is what processes compare.
const digest = sha256.Size / 4

// agree compares what all processes have: they must have the same. what names it in an error.
func (b *Backend) agree(what, hint string, data []byte) error {
	if !b.several() {
		return nil
	}
	b.hosts.mu.Lock()
	defer b.hosts.mu.Unlock()
	all := shapes.Make(dtypes.Uint32, len(b.devices), digest)
	if b.hosts.votes == nil {
		over := make([]string, 0, b.mesh.Rank())
		for _, axis := range b.mesh.Axes() {
			over = append(over, axis.Name)
		}
		v, err := b.mover("agree", all, sharding.P(over, nil), sharding.Replicated(2))
		if err != nil {
			return err
		}
		b.hosts.votes = v
	}
	sum := sha256.Sum256(data)
	tensor := make([]byte, len(b.devices)*sha256.Size)
	for d := range b.devices {
		copy(tensor[d*sha256.Size:], sum[:])
	}
	votes, err := b.spread(tensor, all, b.hosts.votes.args[0])
	if err != nil {
		return err
	}
	got, err := b.move(b.hosts.votes, votes.parts)
	if err := errors.Join(err, votes.Close()); err != nil {
		return err
	}
	err = got.parts[0].ToHost(context.Background(), tensor)
	if err := errors.Join(err, got.Close()); err != nil {
		return err
	}
	return b.differ(what, hint, tensor)
}

// MismatchError reports that the processes of a job differ in something that must be the same on
// all of them: the text of a program, or the first value of a variable.
type MismatchError struct {
	// What names what was compared, such as `variable "/dense/weights"`, and Hint says what makes it
	// the same.
	What, Hint string
	// Differing are the processes that have something else than process 0, ascending.
	Differing []int
}

// Error says which processes differ, and what to do.
func (e *MismatchError) Error() string {
	return errkind.Text("global: "+e.What, fmt.Sprintf("processes %v have another than process 0", e.Differing), nil, e.Hint)
}

// Kind returns ValueError.
func (*MismatchError) Kind() errkind.Kind { return errkind.ValueError }

// differ compares the digests of all devices' processes.
func (b *Backend) differ(what, hint string, digests []byte) error {
	e := &MismatchError{What: what, Hint: hint}
	of := func(d int) []byte { return digests[d*sha256.Size : (d+1)*sha256.Size] }
	d := 0
	for process, ids := range b.sys.Topology().DeviceIDs() {
		for range ids {
			if !bytes.Equal(of(d), of(0)) && !slices.Contains(e.Differing, process) {
				e.Differing = append(e.Differing, process)
			}
			d++
		}
	}
	if len(e.Differing) > 0 {
		return e
	}
	return nil
}

// agreeOn compares the values that variables get from the host with this execution: together, and
// one by one where they differ, to name what does.
func (e *Executable) agreeOn(inputs []compute.Buffer) error {
	b, p := e.backend, e.state.program
	if !b.several() {
		return nil
	}
	var fresh []int
	var sum []byte
	value := func(i int) []byte {
		h := inputs[i].(*Buffer).held
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
