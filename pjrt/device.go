package pjrt

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
)

// DeviceDescription tells what is known of a device without opening it. It is immutable and
// outlives its client or topology.
type DeviceDescription struct{ info capi.DescriptionInfo }

// ID returns the device's number, which is unique over all processes.
func (d *DeviceDescription) ID() int { return d.info.ID }

// ProcessIndex returns the number of the process that can address the device.
func (d *DeviceDescription) ProcessIndex() int { return d.info.Process }

// Kind returns the vendor's name of the device, such as "TPU v5 lite".
func (d *DeviceDescription) Kind() string { return d.info.Kind }

// DebugString returns the plugin's longer text of the device.
func (d *DeviceDescription) DebugString() string { return d.info.Debug }

// String returns the plugin's short text of the device.
func (d *DeviceDescription) String() string { return d.info.String }

// Attributes returns what else the plugin tells of the device, such as coords ([]int64: x, y, z)
// and core_on_chip (int64) on a TPU. The map is the caller's.
func (d *DeviceDescription) Attributes() map[string]any { return cloneAttributes(d.info.Attributes) }

// Device is a device of a client. It belongs to the client and has no Close. All methods but
// MemoryStats can still be called after the client is closed.
type Device struct {
	DeviceDescription
	core          *core
	handle        capi.Device
	addressable   bool
	localID       int
	memories      []*Memory
	defaultMemory *Memory
}

// Addressable reports whether this process can use the device.
func (d *Device) Addressable() bool { return d.addressable }

// LocalHardwareID returns the number of the device within its machine; -1 if that is not known or
// the device is not addressable.
func (d *Device) LocalHardwareID() int { return d.localID }

// Memories returns the memories that the device can address.
func (d *Device) Memories() []*Memory { return slices.Clone(d.memories) }

// DefaultMemory returns the memory where buffers go unless asked otherwise; nil if it is not known.
func (d *Device) DefaultMemory() *Memory { return d.defaultMemory }

// Memory returns the memory of the device that is of a kind, such as "pinned_host". A kind that the
// device does not have gives an error that matches [NotFound].
func (d *Device) Memory(kind string) (*Memory, error) {
	var kinds []string
	for _, m := range d.memories {
		if m.Kind() == kind {
			return m, nil
		}
		kinds = append(kinds, m.Kind())
	}
	return nil, &errkind.Fault{Op: "pjrt: look up memory", Subject: strconv.Quote(kind), Reason: fmt.Sprintf("device %d has none of this kind", d.ID()), Err: NotFound, Hint: fmt.Sprintf("it has %q", kinds)}
}

// MemoryStats is the account that a device's allocator keeps, in bytes except for Allocations. A
// figure that the plugin does not keep is -1.
type MemoryStats struct {
	// BytesInUse is what is allocated now, and PeakBytesInUse the most that ever was.
	BytesInUse, PeakBytesInUse int64
	// Allocations counts the allocations made.
	Allocations int64
	// LargestAllocation is the largest allocation made, and BytesLimit the most that can be
	// allocated.
	LargestAllocation, BytesLimit int64
	// BytesReserved is what is reserved now, and PeakBytesReserved the most that ever was.
	BytesReserved, PeakBytesReserved int64
	// BytesReservableLimit is the most that can be reserved.
	BytesReservableLimit int64
	// LargestFreeBlock is the largest piece that is free in one.
	LargestFreeBlock int64
	// PoolBytes is what the allocator holds from the system now, and PeakPoolBytes the most that it
	// ever held.
	PoolBytes, PeakPoolBytes int64
}

// MemoryStats returns the allocator's account of the device. A plugin without one, such as the
// CPU's, gives an error that matches errors.ErrUnsupported.
func (d *Device) MemoryStats() (MemoryStats, error) {
	if err := d.core.retain(childCall); err != nil {
		return MemoryStats{}, fail("memory stats", "", err)
	}
	defer d.core.release(childCall)
	v, set, err := d.core.api.DeviceMemoryStats(d.handle)
	if err != nil {
		return MemoryStats{}, d.core.wrap("memory stats", err)
	}
	for i := range v {
		if set>>i&1 == 0 {
			v[i] = -1
		}
	}
	return MemoryStats{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10]}, nil
}

// Memory is a memory space of a client, such as a device's own or pinned host memory. It belongs to
// the client and has no Close.
type Memory struct {
	core    *core
	handle  capi.Memory
	info    capi.MemoryInfo
	handles []capi.Device
	devices []*Device
}

// ID returns the memory's number, which is unique among the client's memories.
func (m *Memory) ID() int { return m.info.ID }

// Kind returns the kind of the memory, such as "device", "pinned_host" or "unpinned_host".
func (m *Memory) Kind() string { return m.info.Kind }

// KindID returns the plugin's number of the kind.
func (m *Memory) KindID() int { return m.info.KindID }

// DebugString returns the plugin's longer text of the memory.
func (m *Memory) DebugString() string { return m.info.Debug }

// String returns the plugin's short text of the memory.
func (m *Memory) String() string { return m.info.String }

// Devices returns the devices that can address the memory.
func (m *Memory) Devices() []*Device { return slices.Clone(m.devices) }
