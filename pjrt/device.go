package pjrt

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
)

// DeviceDescription describes a device of a client or of a topology. It is immutable and remains
// valid after the client or the topology is closed.
type DeviceDescription struct{ info capi.DescriptionInfo }

// ID returns the device id, which is unique across all processes.
func (d *DeviceDescription) ID() int { return d.info.ID }

// ProcessIndex returns the index of the process that can address the device.
func (d *DeviceDescription) ProcessIndex() int { return d.info.Process }

// Kind returns the vendor's name of the device, such as "TPU v5 lite".
func (d *DeviceDescription) Kind() string { return d.info.Kind }

// DebugString returns the plugin's long description of the device.
func (d *DeviceDescription) DebugString() string { return d.info.Debug }

// String returns the plugin's short description of the device.
func (d *DeviceDescription) String() string { return d.info.String }

// Attributes returns a copy of the plugin's attributes of the device. For example, TPU devices have
// the attributes coords ([]int64: x, y, z) and core_on_chip (int64).
func (d *DeviceDescription) Attributes() map[string]any { return cloneAttributes(d.info.Attributes) }

// Device is a device of a client. The client owns the Device. All methods except MemoryStats can be
// called after the client is closed.
type Device struct {
	DeviceDescription
	core          *clientHandle
	handle        capi.Device
	addressable   bool
	localID       int
	memories      []*Memory
	defaultMemory *Memory
}

// Addressable reports whether this process can use the device.
func (d *Device) Addressable() bool { return d.addressable }

// LocalHardwareID returns the index of the device on its host. It returns -1 if the index is
// unknown or the device is not addressable.
func (d *Device) LocalHardwareID() int { return d.localID }

// Memories returns the memories that the device can address.
func (d *Device) Memories() []*Memory { return slices.Clone(d.memories) }

// DefaultMemory returns the memory space in which buffers are created by default, or nil if it is
// unknown.
func (d *Device) DefaultMemory() *Memory { return d.defaultMemory }

// Memory returns the memory space of the device with the given kind, such as "pinned_host". If the
// device has no such memory, the error matches [NotFound].
func (d *Device) Memory(kind string) (*Memory, error) {
	var kinds []string
	for _, m := range d.memories {
		if m.Kind() == kind {
			return m, nil
		}
		kinds = append(kinds, m.Kind())
	}
	return nil, &errkind.Fault{Op: "pjrt: look up memory", Subject: strconv.Quote(kind), Err: NotFound,
		Reason: fmt.Sprintf("device %d has no memory of this kind", d.ID()), Hint: fmt.Sprintf("use one of %q", kinds)}
}

// MemoryStats contains the statistics of a device's memory allocator. All values except Allocations
// are in bytes. A value that the plugin does not report is -1.
type MemoryStats struct {
	// BytesInUse is the allocated memory, and PeakBytesInUse its maximum.
	BytesInUse, PeakBytesInUse int64
	// Allocations is the number of allocations so far.
	Allocations int64
	// LargestAllocation is the largest allocation so far. BytesLimit is the limit for allocations.
	LargestAllocation, BytesLimit int64
	// BytesReserved is the reserved memory, and PeakBytesReserved its maximum.
	BytesReserved, PeakBytesReserved int64
	// BytesReservableLimit is the limit for reservations.
	BytesReservableLimit int64
	// LargestFreeBlock is the largest contiguous free block.
	LargestFreeBlock int64
	// PoolBytes is the memory that the allocator has obtained from the system, and PeakPoolBytes
	// its maximum.
	PoolBytes, PeakPoolBytes int64
}

// MemoryStats returns the statistics of the device's memory allocator. If the plugin provides no
// statistics, as is the case for the CPU plugin, the error matches errors.ErrUnsupported.
func (d *Device) MemoryStats() (MemoryStats, error) {
	if err := d.core.acquire(dependentCall); err != nil {
		return MemoryStats{}, opError("memory stats", "", err)
	}
	defer d.core.release(dependentCall)
	v, set, err := d.core.api.DeviceMemoryStats(d.handle)
	if err != nil {
		return MemoryStats{}, d.core.wrapError("memory stats", err)
	}
	for i := range v {
		if set>>i&1 == 0 {
			v[i] = -1
		}
	}
	return MemoryStats{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10]}, nil
}

// Memory is a memory space of a client, such as the memory of a device or pinned host memory. The
// client owns the Memory.
type Memory struct {
	core    *clientHandle
	handle  capi.Memory
	info    capi.MemoryInfo
	handles []capi.Device
	devices []*Device
}

// ID returns the id of the memory, which is unique within the client.
func (m *Memory) ID() int { return m.info.ID }

// Kind returns the kind of the memory, such as "device", "pinned_host" or "unpinned_host".
func (m *Memory) Kind() string { return m.info.Kind }

// KindID returns the plugin's number for the kind.
func (m *Memory) KindID() int { return m.info.KindID }

// DebugString returns the plugin's long description of the memory.
func (m *Memory) DebugString() string { return m.info.Debug }

// String returns the plugin's short description of the memory.
func (m *Memory) String() string { return m.info.String }

// Devices returns the devices that can address the memory.
func (m *Memory) Devices() []*Device { return slices.Clone(m.devices) }
