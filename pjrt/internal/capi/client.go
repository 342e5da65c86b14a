package capi

/*
#include "shims.h"
*/
import "C"

import "unsafe"

// Attributes returns the attributes of the plugin.
func (a *API) Attributes() (map[string]any, error) {
	var l C.tps_list
	return a.takeValues(C.tps_plugin_attributes(a.p, &l), &l)
}

// ClientCreate creates a client. If the client has no key-value store, requests is the zero value.
func (a *API) ClientCreate(options []NamedValue, requests RequestPipe) (Client, error) {
	opts, free := newCValues(options)
	defer free()
	var c unsafe.Pointer
	err := a.goError(C.tps_client_create(a.p, opts, C.size_t(len(options)), requests.p, &c))
	return Client(c), err
}

func (a *API) ClientDestroy(c Client) error {
	return a.goError(C.tps_client_destroy(a.p, unsafe.Pointer(c)))
}

// takeString converts the string that a C shim returned to a Go string. If the shim returned an
// error e instead, takeString returns e as a Go error.
func (a *API) takeString(e unsafe.Pointer, s *C.tps_str) (string, error) {
	if e != nil {
		return "", a.goError(e)
	}
	return goString(*s), nil
}

func (a *API) ClientPlatformName(c Client) (string, error) {
	var s C.tps_str
	return a.takeString(C.tps_client_platform_name(a.p, unsafe.Pointer(c), &s), &s)
}

func (a *API) ClientPlatformVersion(c Client) (string, error) {
	var s C.tps_str
	return a.takeString(C.tps_client_platform_version(a.p, unsafe.Pointer(c), &s), &s)
}

func (a *API) ClientProcessIndex(c Client) (int, error) {
	var n C.int
	err := a.goError(C.tps_client_process_index(a.p, unsafe.Pointer(c), &n))
	return int(n), err
}

// ClientTopology returns a topology that the client owns.
func (a *API) ClientTopology(c Client) (Topology, error) {
	var t unsafe.Pointer
	err := a.goError(C.tps_client_topology(a.p, unsafe.Pointer(c), &t))
	return Topology(t), err
}

func (a *API) ClientDevices(c Client) ([]Device, error) {
	var l C.tps_list
	err := a.goError(C.tps_client_devices(a.p, unsafe.Pointer(c), &l))
	return goHandles[Device](l), err
}

func (a *API) ClientAddressableDevices(c Client) ([]Device, error) {
	var l C.tps_list
	err := a.goError(C.tps_client_addressable_devices(a.p, unsafe.Pointer(c), &l))
	return goHandles[Device](l), err
}

func (a *API) ClientMemories(c Client) ([]Memory, error) {
	var l C.tps_list
	err := a.goError(C.tps_client_addressable_memories(a.p, unsafe.Pointer(c), &l))
	return goHandles[Memory](l), err
}

func (a *API) ClientCompile(c Client, code []byte, format string, options []byte) (Loaded, error) {
	var x unsafe.Pointer
	err := a.goError(C.tps_client_compile(a.p, unsafe.Pointer(c), bytesPointer(code), C.size_t(len(code)),
		stringPointer(format), C.size_t(len(format)), bytesPointer(options), C.size_t(len(options)), &x))
	return Loaded(x), err
}

func (a *API) ClientDeserialize(c Client, serialized, options []byte) (Loaded, error) {
	var x unsafe.Pointer
	err := a.goError(C.tps_client_deserialize(a.p, unsafe.Pointer(c), bytesPointer(serialized), C.size_t(len(serialized)),
		bytesPointer(options), C.size_t(len(options)), &x))
	return Loaded(x), err
}

// These are values of PJRT_HostBufferSemantics.
const (
	ImmutableOnlyDuringCall = 0
	ImmutableZeroCopy       = 2
	MutableZeroCopy         = 3
)

// BufferFromHost creates a buffer with a copy of data. The plugin does not use data after the call.
func (a *API) BufferFromHost(c Client, data unsafe.Pointer, dtype int, dims []int64, d Device) (Buffer, error) {
	var b unsafe.Pointer
	err := a.goError(C.tps_client_buffer(a.p, unsafe.Pointer(c), data, C.int(dtype), (*C.int64_t)(unsafe.SliceData(dims)),
		C.size_t(len(dims)), ImmutableOnlyDuringCall, unsafe.Pointer(d), nil, &b, nil))
	return Buffer(b), err
}

// BufferFromHostZeroCopy creates a buffer that may use data as its memory. The plugin may read data
// until the event done is ready. With MutableZeroCopy, it may also write to data.
func (a *API) BufferFromHostZeroCopy(c Client, data unsafe.Pointer, dtype int, dims []int64, d Device,
	semantics int) (b Buffer, done Event, err error) {
	var buffer, event unsafe.Pointer
	err = a.goError(C.tps_client_buffer(a.p, unsafe.Pointer(c), data, C.int(dtype), (*C.int64_t)(unsafe.SliceData(dims)),
		C.size_t(len(dims)), C.int(semantics), unsafe.Pointer(d), nil, &buffer, &event))
	return Buffer(buffer), Event(event), err
}
