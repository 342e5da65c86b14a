// Package gomlx runs GoMLX programs on all devices of a machine or of a slice, unchanged. An import
// registers the backend "tpustrategy" with GoMLX:
//
//	import _ "github.com/tpustrategy/tpustrategy/gomlx"
//
//	GOMLX_BACKEND=tpustrategy ./any-gomlx-program                       # the TPU, or the CPU
//	GOMLX_BACKEND=tpustrategy:devices=8,logical=2,rules=megatron,explain=1 ./any-gomlx-program
//	GOMLX_BACKEND=tpustrategy:topology=v5e-16 ./any-gomlx-program       # no TPU: stops with the report
//
// # What it is
//
// A compute.Backend that shows GoMLX one device and runs each program on R replicas of P logical
// devices. A graph that GoMLX did not distribute is the program over the global batch: its arguments
// are laid over the mesh ["replica"=R, "logical"=P], and the compiler's partitioner divides
// everything else. The numbers are those of one device, up to the order of sums.
//
//	sys, err := system.Open(ctx, system.Options{CPUDevices: 8})
//	b, err := gomlx.New(sys, gomlx.Options{Logical: 2}) // 4 replicas of 2 logical devices
//	defer b.Finalize()
//	trainer := train.NewTrainer(b, store, model, loss, optimizer, nil, nil) // GoMLX's own
//
// # What is split
//
// A parameter whose name begins with "/" is a variable: GoMLX gives it the variable's path. It is
// laid out as the rules say, and whole on each device without a rule. Any other parameter is data:
// it is split along dimension 0 over the replicas where they divide it, and whole on each device
// elsewhere. A result that is the next value of a donated parameter has the parameter's layout and
// takes its memory, so that a training loop moves no variable.
//
// # Configuration
//
// One text says which devices there are and how programs are split over them, in GOMLX_BACKEND after
// the name, or given to [NewFromConfig], which lists its options:
//
//	GOMLX_BACKEND=tpustrategy:devices=8,logical=2,rules=megatron.json,cache=DIR,explain=1
//
// Without any text it is the TPU of the machine, or one device of the CPU plugin. [Options] are the
// same in Go.
//
// [logical.Rules] say which variable is split along which dimension over which axis. They are values, with a
// JSON form ([logical.ParseRules]) and sets that have a name ([logical.BuiltinRules]). What an optimizer keeps of a
// variable follows the variable ([logical.StateOf]). A dimension that does not divide stays whole, which
// explain=1 reports, or is an error where the rule is Required. Of the first program that takes
// variables and data, rules that reach no variable are noted on standard error; a [*logical.RuleError] ends
// the program if no rule reaches any.
//
// explain=1 says once of each program, on standard error, how its parameters are split and why, what
// is whole though it was to be split, which axes do the same work several times, and what memory
// and collectives the compiled program has: an [Explanation].
//
// cache=DIR keeps compiled programs: another process that runs the same program compiles nothing.
//
// topology=v5e-16 compiles for a slice that is not here. The first program that takes variables and
// data, such as a training step, is compiled by the slice's compiler in a process of its own. A long
// compilation says each ten seconds how far it is. The program then ends with the report on its standard
// output and exit code 0, or 4 if the step does not fit: see [Exit], and [Options].Stopped for programs
// that go on with the [*AheadOfTimeError] instead.
//
// # Buffers
//
// A [Buffer] is a global value. It stays in host memory until a program first takes it, and is then
// laid out as that program wants it; a single device has it at once. It is moved only for a program
// that wants it otherwise, and gathered when it is read.
//
// # Devices that GoMLX names
//
// NumDevices is the number of all devices, and GoMLX's own distribution (DistributedSPMD,
// DistributedAutoSharding, DeviceAssignment) works over them, in one process. A program takes a
// buffer whole to each device that it runs on, whatever device the buffer was made for. An execution
// of an undistributed program with another default device than 0 runs on that device alone.
//
// # Waiting
//
// compute's interfaces carry no context. Execute returns once the work is enqueued, and ToFlatData
// waits for the value for as long as it takes, or until the backend is finalized: a program that
// handles Ctrl-C calls Finalize, and what waits returns [ErrFinalized]. A program is compiled when it
// is first executed.
//
// # Cost
//
// A step that updates its variables in place moves nothing but its batch, and allocates about five
// Go objects for each variable, whatever the number of devices.
package gomlx
