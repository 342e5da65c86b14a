package capi

/*
#include "shims.h"
*/
import "C"

import "unsafe"

// DescriptionInfo contains the properties of a device description.
type DescriptionInfo struct {
	ID, Process         int
	Kind, Debug, String string
	Attributes          map[string]any
}

func (a *API) Describe(d Description) (DescriptionInfo, error) {
	p := unsafe.Pointer(d)
	var id, process C.int
	var kind, debug, str C.tps_str
	var attrs C.tps_list
	for _, e := range []unsafe.Pointer{
		C.tps_description_id(a.p, p, &id), C.tps_description_process(a.p, p, &process),
		C.tps_description_kind(a.p, p, &kind), C.tps_description_debug(a.p, p, &debug),
		C.tps_description_string(a.p, p, &str), C.tps_description_attributes(a.p, p, &attrs),
	} {
		if err := a.goError(e); err != nil {
			return DescriptionInfo{}, err
		}
	}
	return DescriptionInfo{int(id), int(process), goString(kind), goString(debug), goString(str), goValues(attrs)}, nil
}

func (a *API) DeviceDescription(d Device) (Description, error) {
	var out unsafe.Pointer
	err := a.goError(C.tps_device_description(a.p, unsafe.Pointer(d), &out))
	return Description(out), err
}

func (a *API) DeviceAddressable(d Device) (bool, error) {
	var n C.int
	err := a.goError(C.tps_device_addressable(a.p, unsafe.Pointer(d), &n))
	return n != 0, err
}

func (a *API) DeviceLocalID(d Device) (int, error) {
	var n C.int
	err := a.goError(C.tps_device_local_id(a.p, unsafe.Pointer(d), &n))
	return int(n), err
}

func (a *API) DeviceMemories(d Device) ([]Memory, error) {
	var l C.tps_list
	err := a.goError(C.tps_device_memories(a.p, unsafe.Pointer(d), &l))
	return goHandles[Memory](l), err
}

func (a *API) DeviceDefaultMemory(d Device) (Memory, error) {
	var m unsafe.Pointer
	err := a.goError(C.tps_device_default_memory(a.p, unsafe.Pointer(d), &m))
	return Memory(m), err
}

// DeviceMemoryStats returns the 11 values of the C struct in order, and a bit mask of the values
// that the plugin reports.
func (a *API) DeviceMemoryStats(d Device) (stats [11]int64, set uint32, err error) {
	var out [11]C.int64_t
	var bits C.uint32_t
	err = a.goError(C.tps_device_memory_stats(a.p, unsafe.Pointer(d), &out[0], &bits))
	for i, v := range out {
		stats[i] = int64(v)
	}
	return stats, uint32(bits), err
}

// MemoryInfo contains the properties of a memory space.
type MemoryInfo struct {
	ID, KindID          int
	Kind, Debug, String string
	Devices             []Device
}

func (a *API) DescribeMemory(m Memory) (MemoryInfo, error) {
	p := unsafe.Pointer(m)
	var id, kindID C.int
	var kind, debug, str C.tps_str
	var devices C.tps_list
	for _, e := range []unsafe.Pointer{
		C.tps_memory_id(a.p, p, &id), C.tps_memory_kind_id(a.p, p, &kindID), C.tps_memory_kind(a.p, p, &kind),
		C.tps_memory_debug(a.p, p, &debug), C.tps_memory_string(a.p, p, &str), C.tps_memory_devices(a.p, p, &devices),
	} {
		if err := a.goError(e); err != nil {
			return MemoryInfo{}, err
		}
	}
	return MemoryInfo{int(id), int(kindID), goString(kind), goString(debug), goString(str), goHandles[Device](devices)},
		nil
}

func (a *API) TopologyCreate(name string, options []NamedValue) (Topology, error) {
	opts, free := newCValues(options)
	defer free()
	var t unsafe.Pointer
	err := a.goError(C.tps_topology_create(a.p, stringPointer(name), C.size_t(len(name)), opts, C.size_t(len(options)),
		&t))
	return Topology(t), err
}

func (a *API) TopologyDeserialize(b []byte) (Topology, error) {
	var t unsafe.Pointer
	err := a.goError(C.tps_topology_deserialize(a.p, bytesPointer(b), C.size_t(len(b)), &t))
	return Topology(t), err
}

func (a *API) TopologyDestroy(t Topology) error {
	return a.goError(C.tps_topology_destroy(a.p, unsafe.Pointer(t)))
}

func (a *API) TopologyPlatformName(t Topology) (string, error) {
	var s C.tps_str
	return a.takeString(C.tps_topology_platform_name(a.p, unsafe.Pointer(t), &s), &s)
}

func (a *API) TopologyPlatformVersion(t Topology) (string, error) {
	var s C.tps_str
	return a.takeString(C.tps_topology_platform_version(a.p, unsafe.Pointer(t), &s), &s)
}

func (a *API) TopologyDescriptions(t Topology) ([]Description, error) {
	var l C.tps_list
	err := a.goError(C.tps_topology_descriptions(a.p, unsafe.Pointer(t), &l))
	return goHandles[Description](l), err
}

func (a *API) TopologyAttributes(t Topology) (map[string]any, error) {
	var l C.tps_list
	return a.takeValues(C.tps_topology_attributes(a.p, unsafe.Pointer(t), &l), &l)
}

func (a *API) TopologySerialize(t Topology) ([]byte, error) {
	var b C.tps_blob
	return a.takeBytes(C.tps_topology_serialize(a.p, unsafe.Pointer(t), &b), &b)
}

func (a *API) TopologyFingerprint(t Topology) (uint64, error) {
	var n C.uint64_t
	err := a.goError(C.tps_topology_fingerprint(a.p, unsafe.Pointer(t), &n))
	return uint64(n), err
}

// Compile compiles a program for a topology without loading it.
func (a *API) Compile(t Topology, code []byte, format string, options []byte) (Executable, error) {
	var x unsafe.Pointer
	err := a.goError(C.tps_compile(a.p, unsafe.Pointer(t), bytesPointer(code), C.size_t(len(code)), stringPointer(format),
		C.size_t(len(format)), bytesPointer(options), C.size_t(len(options)), &x))
	return Executable(x), err
}
