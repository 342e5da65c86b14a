// Package pjrt is a Go binding for PJRT plugins. A plugin is a shared library that implements XLA's
// PJRT C API for one kind of device, such as libtpu for Cloud TPUs or the XLA CPU plugin. The
// binding uses no C or C++ library other than the plugin.
//
// # Example
//
// [FindPlugin] locates a plugin, and [Open] loads it. [Plugin.NewClient] opens its devices.
// [Client.Compile] compiles StableHLO to a [LoadedExecutable]. [Client.BufferFromHost] copies tensors
// to devices, [LoadedExecutable.Execute] runs the program, and [Buffer.ToHost] copies results back.
// [Plugin.NewTopology] and [Topology.Compile] compile for devices that are not available.
//
// # Asynchronous execution and contexts
//
// Execute enqueues a run and returns. Its results are buffers whose contents are computed later.
// [Buffer.Ready] and [Buffer.ToHost] wait for the contents and return errors of the run.
//
// A call into a plugin cannot be interrupted, so a context only limits the wait. When the context
// ends, the Go call returns, the work in the plugin continues, and its result is released.
//
// # Ownership
//
// Client, LoadedExecutable, Executable, Topology and Buffer own memory of the plugin and have a
// Close method. Devices and memories belong to their client. Close may be called at any time, from
// any goroutine; the object is destroyed when the last running call that uses it returns. A client
// cannot be closed while its objects are open ([InUseError]). A plugin is never unloaded. The
// garbage collector releases objects that became unreachable without Close, but programs should not
// rely on it: package pjrt/leaktest makes tests fail for such objects.
//
// Donating an argument transfers its memory to the program. Calls with a donated Buffer fail with
// [ErrDonated] until the Buffer is refilled. [LoadedExecutable.Execute] describes how a step loop
// reuses buffers without allocations.
//
// # Errors
//
// An error of a plugin is an [*Error] with a [Code]; errors.Is accepts codes, as in errors.Is(err,
// pjrt.ResourceExhausted). If the plugin does not implement a function, the error matches
// errors.ErrUnsupported and contains the PJRT version that introduced the function.
//
// This package checks inputs that would crash a plugin. Such errors are [*PluginError], [*CompileError]
// and [*ArgumentError]; invalid options have the kind ValueError, and invalid transfers the kind
// InvalidArgumentError. A closed or donated object returns [ErrClosed] or [ErrDonated].
//
// # Compiler passes
//
// A [Transform] receives the program of each compilation before or after instruction scheduling. It
// can replace the program or stop the compilation; see [Plugin.Register].
//
// # Concurrency
//
// All types are safe for concurrent use. Calls that exclude each other, such as donating a buffer
// that another call reads, return [ErrBusy].
package pjrt
