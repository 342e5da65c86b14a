// Package pjrt drives accelerators through PJRT plugins: shared libraries with the C API of XLA's
// devices, such as libtpu for Cloud TPUs and the XLA CPU plugin. It is this module's own binding:
// no other code than the plugin's is involved.
//
// # From a file to a result
//
// [Find] locates a plugin, and [Open] loads it. [Plugin.NewClient] opens its devices,
// [Client.Compile] makes a [LoadedExecutable] from StableHLO, [Client.BufferFromHost] puts tensors
// onto devices, Execute runs the program and [Buffer.ToHost] reads the results.
// [Plugin.NewTopology] and [Topology.Compile] compile for devices that are not at hand.
//
// # Waiting and contexts
//
// Execute only enqueues: results are buffers whose contents are on their way, and an error of the
// run comes out of [Buffer.Ready] or ToHost. A PJRT call cannot be stopped, so a context bounds the
// wait only: when it ends, the call returns, the work goes on, and what it makes is released when
// it is done.
//
// # Ownership
//
// Client, LoadedExecutable, Executable, Topology and Buffer own memory of the plugin and have a
// Close. Devices and memories belong to their client. Close may be called at any time, from any
// goroutine; the object goes when the last call that uses it has returned. A client refuses to
// close while its children are open ([OpenError]). A plugin is never unloaded. The garbage
// collector ends objects that were dropped without Close, as a net and not as a plan: package
// pjrt/leaktest makes a test fail for them.
//
// Donation gives an argument's memory to the program. Calls on a donated Buffer fail with
// [ErrDonated] until it is filled again, by Execute itself, say: see [LoadedExecutable.Execute] for
// the step loop that allocates nothing.
//
// # Errors
//
// An error of a plugin is an [*Error] with a [Code]; errors.Is works with codes, as in
// errors.Is(err, pjrt.ResourceExhausted). An entry point that a plugin lacks matches
// errors.ErrUnsupported, and the error says which PJRT version has it. Mistakes that this package
// finds itself, before a plugin could crash on them, have types of their own, [*PluginError],
// [*CompileError], [*ArgumentError], or the kind ValueError, of options, and InvalidArgumentError, of
// transfers. Objects that are no longer usable give [ErrClosed] or [ErrDonated].
//
// # What a compiler does
//
// A [Transform] is shown the program of each compilation, before and after the compiler has ordered
// its instructions, and may put another in its place or end the compilation ([Plugin.Register]).
//
// # Concurrency
//
// Everything may be used from several goroutines at once. Calls that exclude each other, such as
// donating a buffer that another call reads, are errors ([ErrBusy]), not races.
package pjrt
