package mesh

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Devices are a machine whose devices are at hand: this process's, and those of the other processes
// of the job.
type Devices struct {
	*Machine
	System *system.System
	// All are the devices, by partition.
	All []*pjrt.Device

	exchanging sync.Mutex // held while an exchange is compiled

	mu        sync.Mutex
	exchanges []*exchange
	closed    bool
}

// On returns the machine of a system's devices. The system stays the caller's. Errors: a device that
// the system lacks, and groups of which this process has no device.
func On(sys *system.System, opts Options) (*Devices, error) {
	compile := func(ctx context.Context, program pjrt.Program, of pjrt.CompileOptions) (system.Executable, error) {
		client := sys.Client()
		if client == nil || opts.Compiler == nil {
			return sys.Runtime().Compile(ctx, program, of)
		}
		x, err := opts.Compiler.Compile(ctx, client, program, of)
		if err != nil {
			return nil, err
		}
		return x, nil
	}
	d := &Devices{Machine: newMachine(sys.Topology(), sys.Platform(), opts, compile), System: sys}
	tasks := make([]int, len(d.ids))
	for i, id := range d.ids {
		device, ok := sys.Device(id)
		if !ok {
			return nil, d.fault(errkind.ValueError, "devices", "use a device assignment of the system's devices", "it names device %d, which the system does not have", id)
		}
		d.All = append(d.All, device)
		tasks[i], _ = sys.Topology().TaskOfDevice(id)
	}
	var ok bool
	if d.Processes, ok = NewProcesses(tasks, sys.Process(), d.group); !ok {
		return nil, d.fault(errkind.ValueError, "devices", "every process of the system takes part",
			"no device of this process, which is process %d of %d", sys.Process(), sys.NumProcesses())
	}
	return d, nil
}

// Buffers are what the devices hold of a tensor, by partition: nil for those of other processes.
type Buffers []*pjrt.Buffer

// Buffers returns room for the buffers of a tensor.
func (m *Machine) Buffers() Buffers { return make(Buffers, len(m.ids)) }

// Close closes the buffers.
func (all Buffers) Close() error {
	var errs []error
	for _, b := range all {
		if b != nil {
			errs = append(errs, b.Close())
		}
	}
	return errors.Join(errs...)
}

// Ready waits until the buffers have their contents.
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

// Rows returns the partitions of a program's launch rows.
func (d *Devices) Rows(x system.Executable) ([]int, error) {
	var rows []int
	for _, device := range x.AddressableDevices() {
		partition := slices.Index(d.ids, device.ID())
		if partition < 0 || !d.Local[partition] {
			return nil, d.fault(errkind.InternalError, "program", "use a device assignment of the system's devices",
				"it runs on device %d, which is none of this process's", device.ID())
		}
		rows = append(rows, partition)
	}
	return rows, nil
}

// Table returns room for a launch's arguments or results: a line for each of so many rows.
func Table(rows, columns int) [][]*pjrt.Buffer {
	all := make([]*pjrt.Buffer, rows*columns)
	table := make([][]*pjrt.Buffer, rows)
	for i := range table {
		table[i] = all[i*columns : (i+1)*columns : (i+1)*columns]
	}
	return table
}

// Column returns a column of a launch's table as the buffers of a tensor. rows are the partitions of
// the table's rows.
func (m *Machine) Column(table [][]*pjrt.Buffer, rows []int, column int) Buffers {
	all := m.Buffers()
	for row, d := range rows {
		all[d] = table[row][column]
	}
	return all
}

// Close gives up compilations under way and closes the exchanges. Who closes holds Launch; programs
// and buffers are their owners' to close.
func (d *Devices) Close() []error {
	errs := d.CloseBuilds()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, x := range d.exchanges {
		errs = append(errs, x.program.Close())
	}
	d.exchanges = nil
	return errs
}

// Check returns [Options].Closed after Close.
func (d *Devices) Check() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return d.opts.Closed
	}
	return nil
}

// FreeBytes returns how many bytes are free on the fullest of this process's devices; known is false
// for a plugin that does not say, such as the CPU's, whose devices have the host's memory.
func (d *Devices) FreeBytes() (free int64, known bool) {
	for _, i := range d.mine {
		stats, err := d.All[i].MemoryStats()
		if err != nil || stats.BytesLimit <= 0 || stats.BytesInUse < 0 {
			return 0, false
		}
		if left := stats.BytesLimit - stats.BytesInUse; !known || left < free {
			free, known = left, true
		}
	}
	return free, known
}
