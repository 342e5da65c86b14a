// Package gomlx runs unchanged GoMLX programs on all devices of a machine or of a slice. Importing
// it registers the backend "tpustrategy" with GoMLX:
//
//	import _ "github.com/tpustrategy/tpustrategy/gomlx"
//
//	GOMLX_BACKEND=tpustrategy ./any-gomlx-program                       # the TPU, or the CPU
//	GOMLX_BACKEND=tpustrategy:devices=8,logical=2,rules=megatron,explain=1 ./any-gomlx-program
//	GOMLX_BACKEND=tpustrategy:topology=v5e-16 ./any-gomlx-program       # no TPU: stops with the report
//
// # Overview
//
// [Backend] is a compute.Backend that runs each program on R replicas of P logical devices. A graph
// that GoMLX did not distribute is a program over the global batch. Its arguments are sharded over
// the mesh ["replica"=R, "logical"=P], and the compiler's partitioner shards everything else. The
// results are the same as on one device, up to the order of summation.
//
//	sys, err := system.Open(ctx, system.Options{CPUDevices: 8})
//	b, err := gomlx.New(sys, gomlx.Options{LogicalDevices: 2}) // 4 replicas of 2 logical devices
//	defer b.Finalize()
//	trainer := train.NewTrainer(b, store, model, loss, optimizer, nil, nil) // GoMLX's own
//
// # Sharding
//
// A parameter whose name begins with "/" is a variable, because GoMLX names it by the variable's
// path. It is sharded by the rules, and replicated if no rule matches. Any other parameter is data:
// dimension 0 is sharded over the replicas if their number divides it; otherwise the parameter is
// replicated. A result that is the next value of a donated parameter has the parameter's layout and
// reuses its memory, so a training loop does not move variables.
//
// # Configuration
//
// A configuration string selects the devices and specifies how programs are sharded. It follows the
// backend's name in GOMLX_BACKEND, or is passed to [NewFromConfig], which documents the options:
//
//	GOMLX_BACKEND=tpustrategy:devices=8,logical=2,rules=megatron.json,cache=DIR,explain=1
//
// With an empty configuration, the backend uses the TPU of the machine, or one device of the CPU
// plugin. [Options] is the equivalent in Go.
//
// [logical.Rules] specify which dimensions of which variables are sharded over which axes. They can
// be read from JSON ([logical.ParseRules]), and there are built-in sets ([logical.BuiltinRules]).
// The optimizer's state of a variable is sharded like the variable ([logical.OwnerOfState]). A
// dimension that is not divisible is not sharded, which explain=1 reports, or is an error if the
// rule is Required. At the first program with variables and data, rules that match no variable are
// reported on standard error. If no rule matches any variable, the program fails with a
// [*logical.RuleError].
//
// explain=1 writes an [Explanation] of each program to standard error: how its parameters are
// sharded and why, which dimensions could not be sharded, which axes do redundant work, and the
// memory and collectives of the compiled program.
//
// cache=DIR stores compiled programs, so that another process can run the same program without
// compiling it.
//
// topology=v5e-16 compiles for a slice without having it. The first program with variables and
// data, such as a training step, is compiled by the slice's compiler in a separate process. A long
// compilation reports its progress every ten seconds. The program then prints the report to
// standard output and exits with code 0, or 4 if the step does not fit into memory: see [Exit].
// With another [Options].OnAheadOfTime, the program can handle the [*AheadOfTimeError] instead.
//
// # Buffers
//
// A [Buffer] is a global tensor. It is in host memory until it is the input of a program, and is
// then sharded as that program requires. With a single device, it is transferred immediately. It is
// resharded only for a program that requires another layout, and gathered when it is read.
//
// # Devices that GoMLX names
//
// NumDevices returns the number of all devices. GoMLX's own distribution (DistributedSPMD,
// DistributedAutoSharding, DeviceAssignment) works over these devices, in a single process. Such a
// program copies each input buffer unsharded to the device that needs it. An undistributed program
// that is executed with a default device other than 0 runs on that device only.
//
// # Waiting
//
// The interfaces of package compute have no contexts. Execute returns when the work is enqueued.
// ToFlatData waits until the value is available or the backend is finalized. To handle Ctrl-C, call
// Finalize: pending calls then return [ErrFinalized]. A program is compiled at its first execution.
//
// # Cost
//
// A step that updates its variables in place transfers only its batch. It allocates about five Go
// objects per variable, independent of the number of devices.
package gomlx
