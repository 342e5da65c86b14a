package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Buffers are a tensor's shards on the devices, by partition. Shards of other processes are nil.
type Buffers []*pjrt.Buffer

// Buffers returns new Buffers with a nil element for each partition. They are empty if the runtime
// has no devices (see [NewDescribedRuntime]).
func (m *Runtime) Buffers() Buffers { return make(Buffers, len(m.All)) }

// Close closes the buffers.
func (all Buffers) Close() error {
	var errs []error
	for _, b := range all {
		if b == nil {
			continue
		}
		if err := b.Close(); err != nil { // called for each argument of a step: must not allocate
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Ready waits until the contents of the buffers are available.
func (all Buffers) Ready(ctx context.Context) error {
	for _, b := range all {
		if b == nil {
			continue
		}
		if err := b.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// LaunchPartitions returns the partitions of this process that run the program x. The rows of the
// program's argument and result tables are in this order.
func (m *Runtime) LaunchPartitions(x system.Executable) ([]int, error) {
	var rows []int
	for _, device := range x.AddressableDevices() {
		partition := slices.Index(m.ids, device.ID())
		if partition < 0 || !m.Local[partition] {
			return nil, m.fault(errkind.InternalError, "program", "use a device assignment of the system's devices",
				"it runs on device %d, which is none of this process's", device.ID())
		}
		rows = append(rows, partition)
	}
	return rows, nil
}

// NewBufferTable returns a table of nil buffers for the arguments or results of a launch. It has a
// row for each device of this process and a column for each argument or result.
func NewBufferTable(rows, columns int) [][]*pjrt.Buffer {
	all := make([]*pjrt.Buffer, rows*columns)
	table := make([][]*pjrt.Buffer, rows)
	for i := range table {
		table[i] = all[i*columns : (i+1)*columns : (i+1)*columns]
	}
	return table
}

// TableColumn returns a column of a table of [NewBufferTable] as Buffers. rows contains the
// partition of each row.
func (m *Runtime) TableColumn(table [][]*pjrt.Buffer, rows []int, column int) Buffers {
	all := m.Buffers()
	for row, d := range rows {
		all[d] = table[row][column]
	}
	return all
}

// Close cancels running compilations and closes the programs with which processes exchange
// messages. The caller must hold Launch. Other programs and buffers are closed by their owners.
func (m *Runtime) Close() []error {
	m.Cancel()
	errs := m.closeBuilds()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for _, x := range m.exchanges {
		errs = append(errs, x.program.Close())
	}
	m.exchanges = nil
	return errs
}

// Check returns [Options].Closed after Close.
func (m *Runtime) Check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return m.opts.Closed
	}
	return nil
}

// FreeBytes returns the minimum of the free device memory in bytes over the devices of this
// process. known is false if the plugin does not report it. The CPU plugin does not, because its
// devices use host memory.
func (m *Runtime) FreeBytes() (free int64, known bool) {
	for _, i := range m.localPartitions {
		stats, err := m.All[i].MemoryStats()
		if err != nil || stats.BytesLimit <= 0 || stats.BytesInUse < 0 {
			return 0, false
		}
		if left := stats.BytesLimit - stats.BytesInUse; !known || left < free {
			free, known = left, true
		}
	}
	return free, known
}
