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

type tensorType struct {
	dtype pjrt.DType
	dims  []int
}

func (t tensorType) numElements() int {
	n := 1
	for _, d := range t.dims {
		n *= d
	}
	return n
}

// String returns the MLIR type, such as tensor<8x4xf32>.
func (t tensorType) String() string {
	var b strings.Builder
	b.WriteString("tensor<")
	for _, d := range t.dims {
		fmt.Fprintf(&b, "%dx", d)
	}
	return b.String() + mlirNames[t.dtype] + ">"
}

// rawProgram is a StableHLO program with one replica on each device and without SPMD partitioning.
type rawProgram struct {
	name            string
	inputs, outputs []tensorType
	// body contains the operations that compute %r0, %r1, ... from %x0, %x1, ....
	body string
	// aliased means that the arguments are donated, and that result i reuses the memory of argument i.
	aliased bool
}

// stablehlo returns the text of the program for n devices.
func (p rawProgram) stablehlo(n int) []byte {
	var in, out, ret, types []string
	for i, t := range p.inputs {
		alias := ""
		if p.aliased && i < len(p.outputs) {
			alias = fmt.Sprintf(" {tf.aliasing_output = %d : i32}", i)
		}
		in = append(in, fmt.Sprintf("%%x%d: %s%s", i, t, alias))
	}
	for i, t := range p.outputs {
		out, ret, types = append(out, t.String()), append(ret, fmt.Sprintf("%%r%d", i)), append(types, t.String())
	}
	return fmt.Appendf(nil,
		"module @accept_%s attributes {mhlo.num_replicas = %d : i32, mhlo.num_partitions = 1 : i32} {\n"+
			"  func.func public @main(%s) -> (%s) {\n%s    return %s : %s\n  }\n}\n",
		strings.NewReplacer(" ", "_", ",", "", "-", "_").Replace(p.name), n, strings.Join(in, ", "), strings.Join(out, ", "),
		p.body, strings.Join(ret, ", "), strings.Join(types, ", "))
}

// rawCompileOptions returns compile options that assign replica i to the i-th device.
func rawCompileOptions(ids []int) pjrt.CompileOptions {
	o := pjrt.CompileOptions{Replicas: len(ids)}
	for _, id := range ids {
		o.DeviceAssignment = append(o.DeviceAssignment, []int{id})
	}
	return o
}

// executable is a compiled rawProgram.
type executable struct {
	rawProgram
	loaded   system.Executable
	devices  []*pjrt.Device // devices of this host
	replicas []int          // replicas on these devices
}

func (s *session) compile(ctx context.Context, p rawProgram) (*executable, error) {
	ids := s.deviceIDs()
	x, err := s.sys.Runtime().Compile(ctx, pjrt.Program{Code: p.stablehlo(len(ids)), Trusted: true},
		rawCompileOptions(ids))
	if err != nil {
		return nil, err
	}
	l := &executable{rawProgram: p, loaded: x, devices: x.AddressableDevices()}
	for _, d := range l.devices {
		l.replicas = append(l.replicas, slices.Index(ids, d.ID()))
	}
	return l, nil
}

// copyArguments copies the arguments to the devices of this host.
func (l *executable) copyArguments(ctx context.Context, s *session,
	value func(replica, argument int) []byte) ([][]*pjrt.Buffer, error) {
	rows := make([][]*pjrt.Buffer, len(l.devices))
	for d, device := range l.devices {
		for i, t := range l.inputs {
			b, err := s.sys.Runtime().BufferFromHost(ctx, value(l.replicas[d], i), t.dtype, t.dims, device)
			if err != nil {
				return nil, errors.Join(err, closeBuffers(rows))
			}
			rows[d] = append(rows[d], b)
		}
	}
	return rows, nil
}

// launch runs the program and returns its results. If aliased is set, it donates the arguments.
func (l *executable) launch(ctx context.Context, args [][]*pjrt.Buffer) ([][]*pjrt.Buffer, error) {
	results := make([][]*pjrt.Buffer, len(l.devices))
	for d := range results {
		results[d] = make([]*pjrt.Buffer, len(l.outputs))
	}
	var o pjrt.ExecuteOptions
	if l.aliased {
		o.Donate = make([]bool, len(l.inputs))
		for i := range l.outputs {
			o.Donate[i] = true
		}
	}
	if err := l.loaded.Execute(ctx, args, results, o); err != nil {
		return nil, errors.Join(err, closeBuffers(results))
	}
	return results, nil
}

// waitReady waits until the contents of all buffers are computed.
func waitReady(ctx context.Context, rows [][]*pjrt.Buffer) error {
	for _, row := range rows {
		for _, b := range row {
			if err := b.Ready(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func closeBuffers(rows [][]*pjrt.Buffer) (err error) {
	for _, row := range rows {
		for _, b := range row {
			if b != nil {
				err = errors.Join(err, b.Close())
			}
		}
	}
	return err
}

// runRaw compiles and runs a program. It passes each result of each device on this host to the
// callback.
func (s *session) runRaw(ctx context.Context, p rawProgram, value func(replica, argument int) []byte,
	got func(replica, result int, data []byte)) (err error) {
	l, err := s.compile(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.loaded.Close()) }()
	args, err := l.copyArguments(ctx, s, value)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeBuffers(args)) }()
	results, err := l.launch(ctx, args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeBuffers(results)) }()
	for d, row := range results {
		for i, b := range row {
			data := make([]byte, l.outputs[i].numElements()*l.outputs[i].dtype.HostBytes())
			if err := b.ToHost(ctx, data); err != nil {
				return err
			}
			got(l.replicas[d], i, data)
		}
	}
	return nil
}

// allDevicesProgram returns a program whose result depends on the inputs of all devices.
func allDevicesProgram(n int) rawProgram {
	t := tensorType{pjrt.S32, []int{8}}
	return rawProgram{name: "devices", inputs: []tensorType{t}, outputs: []tensorType{t},
		body: collectiveText("all_reduce", 0, t, t, [][]int{sequence(n)})}
}

// checkDevices runs a small program on all devices. It returns an error if they do not respond.
func (s *session) checkDevices(ctx context.Context) error {
	zeros := func(int, int) []byte { return make([]byte, 32) }
	return s.runRaw(ctx, allDevicesProgram(len(s.deviceIDs())), zeros, func(int, int, []byte) {})
}

// sequence returns 0, 1, ..., n-1.
func sequence(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
