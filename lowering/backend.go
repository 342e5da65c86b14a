package lowering

import (
	"fmt"
	"sync/atomic"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// Target says which compiler the text is meant for. It decides only the few places where a
// compiler needs the same program written differently; the meaning of the program never changes.
type Target int

const (
	// TargetTPU writes plain StableHLO, as libtpu takes it.
	TargetTPU Target = iota
	// TargetCPU works around the XLA CPU compiler: it miscompiles an optimization_barrier with one
	// operand (left out, since it orders nothing), and converts all weights of a mixed-precision
	// model at once unless each dot makes its operands wait for each other. Its unstable sort runs
	// past the end of the tensor where the comparator holds for equal elements, as "less or equal"
	// does, and costs as much as its stable one.
	TargetCPU
)

// String returns "TPU" or "CPU".
func (t Target) String() string { return enum.Name(t, "TPU", "CPU") }

// Precision is the precision_config written on every dot_general and convolution. It matters on a
// TPU, whose matrix unit multiplies bfloat16: DEFAULT rounds float32 operands to bfloat16 once,
// HIGH uses three passes, HIGHEST six, which is close to float32.
type Precision int

const (
	// PrecisionDefault is the fastest and least exact.
	PrecisionDefault Precision = iota
	// PrecisionHigh lies between the other two.
	PrecisionHigh
	// PrecisionHighest is the most exact.
	PrecisionHighest
)

// String returns the name StableHLO uses: "DEFAULT", "HIGH" or "HIGHEST".
func (p Precision) String() string { return enum.Name(p, "DEFAULT", "HIGH", "HIGHEST") }

// stableHLO maps p, which is known, to the builder's enumeration.
func (p Precision) stableHLO() types.DotGeneralPrecisionType {
	return [...]types.DotGeneralPrecisionType{types.DotGeneralPrecisionDefault, types.DotGeneralPrecisionHigh, types.DotGeneralPrecisionHighest}[p]
}

// Options configures a Backend. The zero value lowers for a TPU with DEFAULT precision, passes
// Identity through and compiles to an *Executable that cannot run.
type Options struct {
	// Target is the compiler the text is meant for.
	Target Target

	// Precision is written on every dot_general and convolution.
	Precision Precision

	// Random is the generator of random bits.
	Random Random

	// Partitioned says that the compiler splits the program over devices, which
	// Builder.DistributedAutoSharding says of one computation: ops that its partitioner gets wrong
	// are written otherwise.
	Partitioned bool

	// Unfused writes batch normalisations as reductions and elementwise ops, which say what of a
	// batch they combine.
	Unfused bool

	// Numbered writes the parameters of the entry function by their numbers: the text then does not
	// depend on their names, some of which GoMLX makes anew in each process.
	Numbered bool

	// Origins finds the line of the user's code that each op is for: see [ir.Origin]. It costs some
	// microseconds an op.
	Origins bool

	// Replicate, if it is not nil, replicates a value of a partitioned program over all devices. It
	// is called for the operand of a gather and for the updates and positions of a scatter. x is
	// usable in f.
	Replicate func(f *Function, x *stablehlo.Value) (*stablehlo.Value, error)

	// Identity emits whatever stands for compute's Identity op, which GoMLX calls for nodes made by
	// graph.IdentityWithCustomGradient. x is usable in f. The result may have another shape; GoMLX
	// reads it back with OpShape. Nil returns x itself.
	Identity func(f *Function, x *stablehlo.Value) (*stablehlo.Value, error)

	// Parameter, if there is one, is asked before a parameter of the entry function is added. An
	// error refuses it.
	Parameter func(name string, shape shapes.Shape) error

	// Constant, if it is not nil, is called for each constant of the entry function and of its closures
	// that has at least [LargeConstant] bytes and different elements. elements are the elements in
	// row-major order, which it must copy. It returns the parameter that replaces the constant, or a
	// constant without a name to write the elements into the program's text.
	Constant func(shape shapes.Shape, elements []byte) (Constant, error)

	// Compile turns a finished program into something that runs. Nil returns an *Executable.
	Compile func(*Program) (compute.Executable, error)

	// Data moves tensors to and from devices. Nil refuses every transfer with ErrNoData.
	Data compute.DataInterface

	// Name is the backend's short name; "stablehlo" if empty.
	Name string

	// Description is the backend's long name; made from Name and Target if empty.
	Description string

	// NumDevices is what the backend reports as its number of devices; 1 if zero.
	NumDevices int

	// DeviceDescription names one device; "device N" if nil.
	DeviceDescription func(compute.DeviceNum) string
}

// Backend is a [compute.Backend] that turns each graph into a StableHLO module. It holds no device
// and is cheap to make: one per trace is fine. It is safe for concurrent use; its builders are not.
type Backend struct {
	opts      Options
	bad       error        // of the options
	observed  *observation // by Observe, nil if no op is recorded
	sums      sums
	finalized atomic.Bool
}

var _ compute.Backend = (*Backend)(nil)

// Check returns a ValueError for a target, a precision or a generator that is unknown. [New] takes
// such options, and its computations return this error.
func (o Options) Check() error {
	for _, of := range []struct {
		known bool
		name  string
		value any
	}{{o.Target == TargetTPU || o.Target == TargetCPU, "target", o.Target},
		{o.Precision >= PrecisionDefault && o.Precision <= PrecisionHighest, "precision", o.Precision},
		{o.Random == RandomPhilox || o.Random == RandomPCG, "generator of random numbers", int(o.Random)}} {
		if !of.known {
			return &errkind.Fault{Op: "lowering: options", Reason: fmt.Sprintf("the %s %v is unknown", of.name, of.value), Hint: "use one of the package's constants",
				Class: errkind.ValueError}
		}
	}
	return nil
}

// New returns a Backend with the given options.
func New(opts Options) *Backend {
	bad := opts.Check()
	if opts.Name == "" {
		opts.Name = "stablehlo"
	}
	if opts.Description == "" {
		opts.Description = fmt.Sprintf("%s: lowering to StableHLO for %s", opts.Name, opts.Target)
	}
	if opts.NumDevices <= 0 {
		opts.NumDevices = 1
	}
	return &Backend{opts: opts, bad: bad}
}

// Name returns the short name of the backend.
func (b *Backend) Name() string { return b.opts.Name }

// String returns the same as Name.
func (b *Backend) String() string { return b.opts.Name }

// Description returns the long name of the backend.
func (b *Backend) Description() string { return b.opts.Description }

// NumDevices returns Options.NumDevices.
func (b *Backend) NumDevices() int { return b.opts.NumDevices }

// DeviceDescription names device num.
func (b *Backend) DeviceDescription(num compute.DeviceNum) string {
	if b.opts.DeviceDescription != nil {
		return b.opts.DeviceDescription(num)
	}
	return fmt.Sprintf("device %d", num)
}

// Capabilities lists the ops and dtypes that are lowered and that the target's compiler takes. The
// result is the caller's to change.
func (b *Backend) Capabilities() compute.Capabilities { return capabilities(b.opts.Target) }

// Builder starts a new computation. The name becomes the module's, with characters that MLIR does
// not take in a bare symbol replaced.
func (b *Backend) Builder(name string) compute.Builder { return newBuilder(b, name) }

// Finalize makes the backend refuse further work. Programs already compiled stay valid.
func (b *Backend) Finalize() { b.finalized.Store(true) }

// IsFinalized reports whether Finalize was called.
func (b *Backend) IsFinalized() bool { return b.finalized.Load() }

// BufferFromFlatData hands over to Options.Data; without it the error is ErrNoData.
func (b *Backend) BufferFromFlatData(num compute.DeviceNum, flat any, shape shapes.Shape) (compute.Buffer, error) {
	if b.opts.Data == nil {
		return nil, ErrNoData
	}
	return b.opts.Data.BufferFromFlatData(num, flat, shape)
}

// HasSharedBuffers hands over to Options.Data; without it the answer is false.
func (b *Backend) HasSharedBuffers() bool {
	return b.opts.Data != nil && b.opts.Data.HasSharedBuffers()
}

// NewSharedBuffer hands over to Options.Data; without it the error is ErrNoData.
func (b *Backend) NewSharedBuffer(num compute.DeviceNum, shape shapes.Shape) (compute.Buffer, any, error) {
	if b.opts.Data == nil {
		return nil, nil, ErrNoData
	}
	return b.opts.Data.NewSharedBuffer(num, shape)
}
