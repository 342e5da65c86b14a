package capi

/*
#include "shims.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

func (a *API) ExecutableDestroy(x Executable) error {
	return a.goError(C.tps_executable_destroy(a.p, unsafe.Pointer(x)))
}

func (a *API) ExecutableName(x Executable) (string, error) {
	var s C.tps_str
	return a.takeString(C.tps_executable_name(a.p, unsafe.Pointer(x), &s), &s)
}

func (a *API) ExecutableFingerprint(x Executable) (string, error) {
	var s C.tps_str
	return a.takeString(C.tps_executable_fingerprint(a.p, unsafe.Pointer(x), &s), &s)
}

func (a *API) ExecutableCounts(x Executable) (replicas, partitions, outputs int, err error) {
	var r, p, o C.size_t
	err = a.goError(C.tps_executable_counts(a.p, unsafe.Pointer(x), &r, &p, &o))
	return int(r), int(p), int(o), err
}

func (a *API) ExecutableCodeSize(x Executable) (int64, error) {
	var n C.int64_t
	err := a.goError(C.tps_executable_code_size(a.p, unsafe.Pointer(x), &n))
	return int64(n), err
}

func (a *API) ExecutableCost(x Executable) (map[string]any, error) {
	var l C.tps_list
	return a.takeValues(C.tps_executable_cost(a.p, unsafe.Pointer(x), &l), &l)
}

// ExecutableMemoryStats returns the 15 values of the C struct in order. Values that the plugin does
// not report are 0.
func (a *API) ExecutableMemoryStats(x Executable) (stats [15]int64, err error) {
	var out [15]C.int64_t
	err = a.goError(C.tps_executable_memory_stats(a.p, unsafe.Pointer(x), &out[0]))
	for i, v := range out {
		stats[i] = int64(v)
	}
	return stats, err
}

func (a *API) ExecutableOutputTypes(x Executable) ([]int, error) {
	var l C.tps_list
	if err := a.goError(C.tps_executable_output_types(a.p, unsafe.Pointer(x), &l)); err != nil {
		return nil, err
	}
	out := make([]int, l.n)
	for i, t := range unsafe.Slice((*C.int)(l.p), l.n) {
		out[i] = int(t)
	}
	return out, nil
}

func (a *API) ExecutableOutputDims(x Executable) ([][]int64, error) {
	var dims *C.int64_t
	var ranks C.tps_list
	if err := a.goError(C.tps_executable_output_dims(a.p, unsafe.Pointer(x), &dims, &ranks)); err != nil {
		return nil, err
	}
	out := make([][]int64, ranks.n)
	at := 0
	for i, r := range unsafe.Slice((*C.size_t)(ranks.p), ranks.n) {
		out[i] = make([]int64, r)
		for k := range out[i] {
			out[i][k] = int64(*(*C.int64_t)(unsafe.Add(unsafe.Pointer(dims), 8*at)))
			at++
		}
	}
	return out, nil
}

func (a *API) ExecutableOutputKinds(x Executable) ([]string, error) {
	var kinds **C.char
	var sizes C.tps_list
	if err := a.goError(C.tps_executable_output_kinds(a.p, unsafe.Pointer(x), &kinds, &sizes)); err != nil {
		return nil, err
	}
	return goStrings(kinds, sizes), nil
}

func (a *API) ExecutableParameterKinds(x Executable) ([]string, error) {
	var kinds **C.char
	var sizes C.tps_list
	if err := a.goError(C.tps_executable_parameter_kinds(a.p, unsafe.Pointer(x), &kinds, &sizes)); err != nil {
		return nil, err
	}
	return goStrings(kinds, sizes), nil
}

func goStrings(p **C.char, sizes C.tps_list) []string {
	out := make([]string, sizes.n)
	for i, n := range unsafe.Slice((*C.size_t)(sizes.p), sizes.n) {
		out[i] = C.GoStringN(unsafe.Slice(p, sizes.n)[i], C.int(n))
	}
	return out
}

// ExecutableProgram returns the optimized program and its format.
func (a *API) ExecutableProgram(x Executable) ([]byte, string, error) {
	var n C.size_t
	var format C.tps_str
	if err := a.goError(C.tps_executable_program(a.p, unsafe.Pointer(x), nil, &n, &format)); err != nil {
		return nil, "", err
	}
	code := make([]byte, n)
	if n == 0 {
		return code, goString(format), nil
	}
	if err := a.goError(C.tps_executable_program(a.p, unsafe.Pointer(x), bytesPointer(code), &n, &format)); err != nil {
		return nil, "", err
	}
	return code[:n], goString(format), nil
}

func (a *API) ExecutableSerialize(x Executable) ([]byte, error) {
	var b C.tps_blob
	return a.takeBytes(C.tps_executable_serialize(a.p, unsafe.Pointer(x), &b), &b)
}

func (a *API) LoadedDestroy(x Loaded) error {
	return a.goError(C.tps_loaded_destroy(a.p, unsafe.Pointer(x)))
}

// LoadedExecutable returns the executable of a loaded program. The caller must destroy it.
func (a *API) LoadedExecutable(x Loaded) (Executable, error) {
	var out unsafe.Pointer
	err := a.goError(C.tps_loaded_executable(a.p, unsafe.Pointer(x), &out))
	return Executable(out), err
}

// LoadedDevices returns the addressable devices in launch order.
func (a *API) LoadedDevices(x Loaded) ([]Device, error) {
	var l C.tps_list
	err := a.goError(C.tps_loaded_devices(a.p, unsafe.Pointer(x), &l))
	return goHandles[Device](l), err
}

// LoadedAssignment returns a serialized DeviceAssignmentProto.
func (a *API) LoadedAssignment(x Loaded) ([]byte, error) {
	var b C.tps_blob
	return a.takeBytes(C.tps_loaded_assignment(a.p, unsafe.Pointer(x), &b), &b)
}

// Launch contains the argument and result arrays of a call of Execute, in C memory that the plugin
// reads and writes. Args and Outs are the handles of arguments and results, ordered by device
// first. Donated lists the handles that the launch donates, and NonDonated the numbers of the
// parameters that are not donated. A Launch must not be used concurrently.
type Launch struct {
	p          *C.tps_launch
	Args       []Buffer
	Outs       []Buffer
	Donated    []Buffer
	NonDonated []int64
}

// Address returns the address of the C memory, which identifies the Launch in package live.
func (l *Launch) Address() unsafe.Pointer { return unsafe.Pointer(l.p) }

// NumRunning returns the number of earlier launches whose donated handles are not destroyed yet.
func (l *Launch) NumRunning() int { return int(l.p.next - l.p.reaped) }

// LaunchDepth is the maximum number of launches that run at the same time.
const LaunchDepth = C.TPS_LAUNCH_DEPTH

// NewLaunch allocates a Launch for x. FreeLaunch must be called before x is destroyed.
func (a *API) NewLaunch(x Loaded, devices, args, outs int) (Launch, error) {
	p := C.tps_launch_new(a.p, unsafe.Pointer(x), C.size_t(devices), C.size_t(args), C.size_t(outs))
	if p == nil {
		return Launch{}, &Error{Code: CodeResourceExhausted,
			Msg: fmt.Sprintf("no memory for a launch of %d devices with %d arguments and %d results", devices, args,
				outs)}
	}
	return Launch{
		p:          p,
		Args:       unsafe.Slice((*Buffer)(unsafe.Pointer(p.args)), devices*args),
		Donated:    unsafe.Slice((*Buffer)(unsafe.Pointer(p.drop)), devices*args),
		Outs:       unsafe.Slice((*Buffer)(unsafe.Pointer(p.outs)), devices*outs),
		NonDonated: unsafe.Slice((*int64)(unsafe.Pointer(p.keep)), args),
	}, nil
}

// FreeLaunch waits for the running launches, destroys the handles that they donated, and frees the
// C memory.
func (a *API) FreeLaunch(l *Launch) { C.tps_launch_free(l.p) }

// Execute enqueues a launch. It uses the first numNonDonated entries of NonDonated and the first
// numDonated entries of Donated. After success, the donated handles belong to the Launch. A later
// launch, at most LaunchDepth launches later, waits until this launch is complete and destroys them.
func (a *API) Execute(l *Launch, numNonDonated, numDonated, launchID int) error {
	C.tps_execute(C.uintptr_t(uintptr(unsafe.Pointer(l.p))), C.size_t(numNonDonated), C.size_t(numDonated),
		C.int(launchID))
	return a.LaunchError(l)
}

// ExecuteInPlace enqueues a launch that donates all arguments. The number of arguments must equal
// the number of results. After success, Args contains the results. After a failure, the caller must
// call LaunchError.
func (l *Launch) ExecuteInPlace() (failed bool) {
	C.tps_execute_in_place(C.uintptr_t(uintptr(unsafe.Pointer(l.p))))
	return l.p.error != nil
}

// LaunchError returns the error of the last failed launch and clears the error.
func (a *API) LaunchError(l *Launch) error {
	e := l.p.error
	l.p.error = nil
	return a.goError(e)
}

// RunLoop enqueues n launches in a loop in C and waits for the last one. Each result replaces the
// argument with the same index, so the number of arguments must equal the number of results.
// Afterwards, Args contains the last results. firstLaunch and total are the durations of the first
// launch and of the complete loop in nanoseconds.
func (a *API) RunLoop(l *Launch, n int) (firstLaunch, total int64, err error) {
	var calls, ns C.int64_t
	err = a.goError(C.tps_floor(l.p, C.size_t(n), &calls, &ns))
	return int64(calls), int64(ns), err
}
