package accept

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// tensorType is the type of a tensor on a device.
type tensorType struct {
	dtype pjrt.DType
	dims  []int
}

func (t tensorType) elements() int {
	n := 1
	for _, d := range t.dims {
		n *= d
	}
	return n
}

// String is the type in MLIR.
func (t tensorType) String() string {
	var b strings.Builder
	b.WriteString("tensor<")
	for _, d := range t.dims {
		fmt.Fprintf(&b, "%dx", d)
	}
	return b.String() + mlirNames[t.dtype] + ">"
}

// raw is a StableHLO program that runs with one replica per device and without the SPMD partitioner.
type raw struct {
	name    string
	in, out []tensorType
	// body are statements that make %r0, %r1, ... of %x0, %x1, ...
	body string
	// alias donates argument i to result i.
	alias bool
}

// text is the program for n devices.
func (p raw) text(n int) []byte {
	var in, out, ret, types []string
	for i, t := range p.in {
		alias := ""
		if p.alias && i < len(p.out) {
			alias = fmt.Sprintf(" {tf.aliasing_output = %d : i32}", i)
		}
		in = append(in, fmt.Sprintf("%%x%d: %s%s", i, t, alias))
	}
	for i, t := range p.out {
		out, ret, types = append(out, t.String()), append(ret, fmt.Sprintf("%%r%d", i)), append(types, t.String())
	}
	return fmt.Appendf(nil, "module @accept_%s attributes {mhlo.num_replicas = %d : i32, mhlo.num_partitions = 1 : i32} {\n"+
		"  func.func public @main(%s) -> (%s) {\n%s    return %s : %s\n  }\n}\n",
		strings.NewReplacer(" ", "_", ",", "", "-", "_").Replace(p.name), n, strings.Join(in, ", "), strings.Join(out, ", "), p.body, strings.Join(ret, ", "), strings.Join(types, ", "))
}

// rawOptions put replica i on the i-th device.
func rawOptions(ids []int) pjrt.CompileOptions {
	o := pjrt.CompileOptions{Replicas: len(ids)}
	for _, id := range ids {
		o.DeviceAssignment = append(o.DeviceAssignment, []int{id})
	}
	return o
}

// executable is a raw program on the devices.
type executable struct {
	raw
	x     system.Executable
	at    []*pjrt.Device // of this host
	index []int          // their replicas
}

func (s *session) load(ctx context.Context, p raw) (*executable, error) {
	ids := s.devices()
	x, err := s.sys.Runtime().Compile(ctx, pjrt.Program{Code: p.text(len(ids)), Trusted: true}, rawOptions(ids))
	if err != nil {
		return nil, err
	}
	l := &executable{raw: p, x: x, at: x.AddressableDevices()}
	for _, d := range l.at {
		l.index = append(l.index, slices.Index(ids, d.ID()))
	}
	return l, nil
}

// put copies the arguments to this host's devices.
func (l *executable) put(ctx context.Context, s *session, value func(replica, argument int) []byte) ([][]*pjrt.Buffer, error) {
	rows := make([][]*pjrt.Buffer, len(l.at))
	for d, device := range l.at {
		for i, t := range l.in {
			b, err := s.sys.Runtime().BufferFromHost(ctx, value(l.index[d], i), t.dtype, t.dims, device)
			if err != nil {
				return nil, errors.Join(err, closeRows(rows))
			}
			rows[d] = append(rows[d], b)
		}
	}
	return rows, nil
}

// launch runs the program. Results are new buffers, or take those that are given up.
func (l *executable) launch(ctx context.Context, args [][]*pjrt.Buffer) ([][]*pjrt.Buffer, error) {
	results := make([][]*pjrt.Buffer, len(l.at))
	for d := range results {
		results[d] = make([]*pjrt.Buffer, len(l.out))
	}
	var o pjrt.ExecuteOptions
	if l.alias {
		o.Donate = make([]bool, len(l.in))
		for i := range l.out {
			o.Donate[i] = true
		}
	}
	if err := l.x.Execute(ctx, args, results, o); err != nil {
		return nil, errors.Join(err, closeRows(results))
	}
	return results, nil
}

// wait waits for all results of this host.
func wait(ctx context.Context, rows [][]*pjrt.Buffer) error {
	for _, row := range rows {
		for _, b := range row {
			if err := b.Ready(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func closeRows(rows [][]*pjrt.Buffer) (err error) {
	for _, row := range rows {
		for _, b := range row {
			if b != nil {
				err = errors.Join(err, b.Close())
			}
		}
	}
	return err
}

// answers runs a program once, and calls got with each result of this host's devices.
func (s *session) answers(ctx context.Context, p raw, value func(replica, argument int) []byte, got func(replica, result int, data []byte)) (err error) {
	l, err := s.load(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.x.Close()) }()
	args, err := l.put(ctx, s, value)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeRows(args)) }()
	results, err := l.launch(ctx, args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeRows(results)) }()
	for d, row := range results {
		for i, b := range row {
			data := make([]byte, l.out[i].elements()*l.out[i].dtype.HostBytes())
			if err := b.ToHost(ctx, data); err != nil {
				return err
			}
			got(l.index[d], i, data)
		}
	}
	return nil
}

// devicesProgram is the program that says that all devices answer: each is needed for what it gives.
func devicesProgram(n int) raw {
	t := tensorType{pjrt.S32, []int{8}}
	return raw{name: "devices", in: []tensorType{t}, out: []tensorType{t}, body: collectiveText("all_reduce", 0, t, t, [][]int{sequence(n)})}
}

// tryDevices says whether the devices answer within a time.
func (s *session) tryDevices(ctx context.Context) error {
	zeros := func(int, int) []byte { return make([]byte, 32) }
	return s.answers(ctx, devicesProgram(len(s.devices())), zeros, func(int, int, []byte) {})
}

// sequence is 0, 1, ... n-1.
func sequence(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
