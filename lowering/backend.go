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

// Target is the compiler that compiles the program. It affects only the few places where a compiler
// needs the same program written differently. The meaning of the program never changes.
type Target int

const (
	// TargetTPU writes plain StableHLO, for libtpu.
	TargetTPU Target = iota
	// TargetCPU works around the XLA CPU compiler. The compiler miscompiles an optimization_barrier
	// with one operand, so such a barrier, which orders nothing, is omitted. The compiler converts
	// all weights of a mixed-precision model at once unless the operands of each dot pass through a
	// common barrier. Its unstable sort reads past the end of the tensor if the comparator is true
	// for equal elements, as "less or equal" is, and is no faster than its stable sort, so every
	// sort is stable.
	TargetCPU
)

// String returns "TPU" or "CPU".
func (t Target) String() string { return enum.Name(t, "TPU", "CPU") }

// Precision is the precision_config written on every dot_general and convolution. It matters on a
// TPU, whose matrix unit multiplies bfloat16: DEFAULT rounds float32 operands to bfloat16 once,
// HIGH uses three passes, and HIGHEST uses six passes, which is close to float32.
type Precision int

const (
	// PrecisionDefault is the fastest and least exact.
	PrecisionDefault Precision = iota
	// PrecisionHigh is between the other two in speed and exactness.
	PrecisionHigh
	// PrecisionHighest is the most exact.
	PrecisionHighest
)

// String returns the name StableHLO uses: "DEFAULT", "HIGH" or "HIGHEST".
func (p Precision) String() string { return enum.Name(p, "DEFAULT", "HIGH", "HIGHEST") }

// stableHLO converts p, which must be valid, to the enumeration of the StableHLO builder.
func (p Precision) stableHLO() types.DotGeneralPrecisionType {
	return [...]types.DotGeneralPrecisionType{types.DotGeneralPrecisionDefault, types.DotGeneralPrecisionHigh, types.DotGeneralPrecisionHighest}[p]
}

// Options configures a Backend. The zero value lowers for a TPU with DEFAULT precision, passes
// Identity through and compiles to an *Executable that cannot run.
type Options struct {
	// Target is the compiler that compiles the program.
	Target Target

	// Precision is written on every dot_general and convolution.
	Precision Precision

	// Random is the generator of random bits for RNGBitGenerator.
	Random Random

	// Partitioned declares that the compiler splits the program over devices. Ops that XLA's
	// partitioner gets wrong are then written differently. Builder.DistributedAutoSharding declares
	// the same for one computation.
	Partitioned bool

	// Unfused writes batch normalizations as reductions and elementwise ops, which specify the axes
	// that they combine. Set it for a program that is split over devices or has padded arguments.
	Unfused bool

	// Numbered names the parameters of the entry function by their numbers. The text then does not
	// depend on the names that GoMLX generates differently in each process.
	Numbered bool

	// Origins records the line of the user's code for each op, see [ir.Origin]. It costs some
	// microseconds per op.
	Origins bool

	// Replicate, if not nil, replicates a value of a partitioned program over all devices. It is
	// called for the operand of a gather and for the updates and positions of a scatter. x is
	// usable in f.
	Replicate func(f *Function, x *stablehlo.Value) (*stablehlo.Value, error)

	// Identity emits the ops for compute's Identity op, which GoMLX calls for nodes of
	// graph.IdentityWithCustomGradient. x is usable in f. The result may have another shape, which
	// GoMLX reads with OpShape. If Identity is nil, the op returns x itself.
	Identity func(f *Function, x *stablehlo.Value) (*stablehlo.Value, error)

	// Parameter, if not nil, is called before a parameter of the entry function is added. If it
	// returns an error, the parameter is rejected.
	Parameter func(name string, shape shapes.Shape) error

	// Constant, if it is not nil, is called for each constant of the entry function and of its closures
	// that has at least [LargeConstant] bytes and different elements. elements are the elements in
	// row-major order, which it must copy. It returns the parameter that replaces the constant, or a
	// constant without a name to write the elements into the program's text.
	Constant func(shape shapes.Shape, elements []byte) (Constant, error)

	// Compile converts a finished program into an executable. If it is nil, Builder.Compile returns
	// an [*Executable], which cannot run.
	Compile func(*Program) (compute.Executable, error)

	// Data transfers tensors to and from devices. If it is nil, each transfer returns [ErrNoData].
	Data compute.DataInterface

	// Name is the backend's short name. The default is "stablehlo".
	Name string

	// Description is the backend's long name. The default is built from Name and Target.
	Description string

	// NumDevices is the number of devices that the backend reports. The default is 1.
	NumDevices int

	// DeviceDescription describes one device. The default is "device N".
	DeviceDescription func(compute.DeviceNum) string
}

// Backend is a [compute.Backend] that lowers each graph to a StableHLO module. It has no device and
// is cheap to create: one backend per trace is fine. It is safe for concurrent use; its builders
// are not.
type Backend struct {
	opts      Options
	bad       error        // the error of Options.Check
	observed  *observation // set by Observe; nil if no op is recorded
	sums      sums
	finalized atomic.Bool
}

var _ compute.Backend = (*Backend)(nil)

// Check returns a ValueError for an undefined target, precision or generator. [New] accepts such
// options; its computations then return this error.
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

// String returns the short name of the backend.
func (b *Backend) String() string { return b.opts.Name }

// Description returns the long name of the backend.
func (b *Backend) Description() string { return b.opts.Description }

// NumDevices returns Options.NumDevices.
func (b *Backend) NumDevices() int { return b.opts.NumDevices }

// DeviceDescription describes device num.
func (b *Backend) DeviceDescription(num compute.DeviceNum) string {
	if b.opts.DeviceDescription != nil {
		return b.opts.DeviceDescription(num)
	}
	return fmt.Sprintf("device %d", num)
}

// Capabilities returns the ops and dtypes that are lowered and that the target's compiler supports.
// The caller owns the result.
func (b *Backend) Capabilities() compute.Capabilities { return capabilities(b.opts.Target) }

// Builder starts a new computation. The module has the given name, with characters that an MLIR
// symbol cannot contain replaced by underscores.
func (b *Backend) Builder(name string) compute.Builder { return newBuilder(b, name) }

// Finalize makes all later uses of the backend's builders return [ErrFinalized]. Compiled programs
// stay valid.
func (b *Backend) Finalize() { b.finalized.Store(true) }

// IsFinalized reports whether Finalize was called.
func (b *Backend) IsFinalized() bool { return b.finalized.Load() }

// BufferFromFlatData calls Options.Data. Without Options.Data it returns [ErrNoData].
func (b *Backend) BufferFromFlatData(num compute.DeviceNum, flat any, shape shapes.Shape) (compute.Buffer, error) {
	if b.opts.Data == nil {
		return nil, ErrNoData
	}
	return b.opts.Data.BufferFromFlatData(num, flat, shape)
}

// HasSharedBuffers calls Options.Data. Without Options.Data it returns false.
func (b *Backend) HasSharedBuffers() bool {
	return b.opts.Data != nil && b.opts.Data.HasSharedBuffers()
}

// NewSharedBuffer calls Options.Data. Without Options.Data it returns [ErrNoData].
func (b *Backend) NewSharedBuffer(num compute.DeviceNum, shape shapes.Shape) (compute.Buffer, any, error) {
	if b.opts.Data == nil {
		return nil, nil, ErrNoData
	}
	return b.opts.Data.NewSharedBuffer(num, shape)
}
