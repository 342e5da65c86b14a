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

// Target is the compiler that a program is lowered for. Lowering avoids the constructs that this
// compiler miscompiles or compiles slowly, and emits equivalent ops instead.
type Target int

const (
	// TargetTPU writes plain StableHLO, for libtpu.
	TargetTPU Target = iota
	// TargetCPU avoids three problems of the XLA CPU compiler. An optimization_barrier with one
	// operand is miscompiled, and is therefore omitted. The compiler converts all weights of a
	// mixed-precision model at once, so the operands of each dot pass through a common barrier. Its
	// unstable sort reads past the end of the tensor if the comparator is true for equal elements.
	// Every sort is therefore stable, which is as fast.
	TargetCPU
)

// String returns "TPU" or "CPU".
func (t Target) String() string { return enum.Name(t, "TPU", "CPU") }

// Precision selects the accuracy of matrix products and convolutions, StableHLO's precision_config.
// The matrix unit of a TPU multiplies bfloat16 numbers: DEFAULT rounds float32 operands to
// bfloat16, HIGH uses three passes, and HIGHEST uses six passes, which is close to float32.
type Precision int

const (
	// PrecisionDefault is the fastest and least exact.
	PrecisionDefault Precision = iota
	// PrecisionHigh is slower and more exact than PrecisionDefault.
	PrecisionHigh
	// PrecisionHighest is the most exact.
	PrecisionHighest
)

// String returns the name StableHLO uses: "DEFAULT", "HIGH" or "HIGHEST".
func (p Precision) String() string { return enum.Name(p, "DEFAULT", "HIGH", "HIGHEST") }

func (p Precision) stableHLO() types.DotGeneralPrecisionType {
	return [...]types.DotGeneralPrecisionType{types.DotGeneralPrecisionDefault, types.DotGeneralPrecisionHigh,
		types.DotGeneralPrecisionHighest}[p]
}

// Options configures a Backend. The zero value lowers for a TPU with DEFAULT precision. Without
// Options.Compile, programs are lowered but cannot run.
type Options struct {
	// Target is the compiler that compiles the program.
	Target Target

	// Precision is the precision of every dot_general and convolution.
	Precision Precision

	// Random is the algorithm of RNGBitGenerator.
	Random Random

	// Partitioned declares that the compiler splits the program over devices, so that ops that
	// XLA's partitioner miscompiles are lowered differently. Builder.DistributedAutoSharding
	// declares it for one computation.
	Partitioned bool

	// Unfused lowers batch normalizations to reductions and elementwise ops. Set it for a program
	// that is split over devices or has padded arguments.
	Unfused bool

	// Numbered names the parameters of the entry function p0, p1 and so on. The text then does not
	// depend on the names that GoMLX generates differently in each process.
	Numbered bool

	// Origins records the line of the user's code for each op, see [ir.Origin]. It costs a few
	// microseconds per op.
	Origins bool

	// Replicate, if not nil, emits ops that replicate x over all devices of a partitioned program.
	// It is called for the operand of a gather, and for the updates and indices of a scatter.
	Replicate func(f *Function, x *stablehlo.Value) (*stablehlo.Value, error)

	// Identity, if not nil, emits the ops for compute's Identity op, which GoMLX calls for nodes of
	// graph.IdentityWithCustomGradient. The result may have another shape than x. If Identity is
	// nil, the op returns x.
	Identity func(f *Function, x *stablehlo.Value) (*stablehlo.Value, error)

	// Parameter, if not nil, is called before a parameter of the entry function is added. If it
	// returns an error, the parameter is rejected.
	Parameter func(name string, shape shapes.Shape) error

	// Constant, if not nil, is called for each constant of the entry function and its closures that
	// has at least [LargeConstant] bytes and different elements. elements contains them in
	// row-major order and must be copied. Constant returns the parameter that replaces the
	// constant. If that has no name, the constant stays in the program's text.
	Constant func(shape shapes.Shape, elements []byte) (Constant, error)

	// Compile converts a finished program to an executable. If Compile is nil, Builder.Compile
	// returns an [*Executable], which cannot run.
	Compile func(*Program) (compute.Executable, error)

	// Data transfers tensors to and from devices. If Data is nil, each transfer returns
	// [ErrNoData].
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
// is cheap to create. A Backend is safe for concurrent use; its builders are not.
type Backend struct {
	opts       Options
	optionsErr error          // the error of Options.Check
	observed   *dtypeObserver // set by Observe; nil if no op is recorded
	sums       sumDTypes
	finalized  atomic.Bool
}

var _ compute.Backend = (*Backend)(nil)

// Check returns an error of kind ValueError if the target, the precision or the random algorithm is
// undefined. [New] does not call Check; instead, the builders of the Backend return this error.
func (o Options) Check() error {
	for _, of := range []struct {
		known bool
		name  string
		value any
	}{{o.Target == TargetTPU || o.Target == TargetCPU, "target", o.Target},
		{o.Precision >= PrecisionDefault && o.Precision <= PrecisionHighest, "precision", o.Precision},
		{o.Random == RandomPhilox || o.Random == RandomPCG, "generator of random numbers", int(o.Random)}} {
		if !of.known {
			return &errkind.Fault{Op: "lowering: options", Reason: fmt.Sprintf("the %s %v is unknown", of.name, of.value),
				Hint:  "use one of the package's constants",
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
	return &Backend{opts: opts, optionsErr: bad}
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

// Capabilities returns the ops and dtypes that this package lowers and the target's compiler
// supports. The caller owns the result.
func (b *Backend) Capabilities() compute.Capabilities { return capabilities(b.opts.Target) }

// Builder starts a new computation, whose module has the given name. Characters that an MLIR symbol
// cannot contain are replaced by underscores.
func (b *Backend) Builder(name string) compute.Builder { return newBuilder(b, name) }

// Finalize invalidates the backend's builders: their methods return [ErrFinalized]. Compiled
// programs remain valid.
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
