package accept

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// Device describes a device as the runtime reports it.
type Device struct {
	ID      int    `json:"id"`
	Process int    `json:"process"`
	Kind    string `json:"kind"`
	// Coords are x, y, z and the core index.
	Coords [4]int `json:"coords"`
	Slice  int    `json:"slice,omitempty"`
	// Memory is the memory available to programs in bytes, or 0 if the runtime does not report it.
	Memory int64 `json:"memory,omitempty"`
}

// describeDevice returns the description of a device. The topology supplies the coordinates if the
// runtime does not report them.
func describeDevice(d *pjrt.DeviceDescription, topology tpu.Topology) Device {
	attributes := d.Attributes()
	slice, _ := attributes["slice_index"].(int64)
	out := Device{ID: d.ID(), Process: d.ProcessIndex(), Kind: d.Kind(), Slice: int(slice)}
	if coords, ok := attributes["coords"].([]int64); ok && len(coords) == 3 {
		core, _ := attributes["core_on_chip"].(int64)
		out.Coords = [4]int{int(coords[0]), int(coords[1]), int(coords[2]), int(core)}
	} else if at, ok := topology.CoordinatesOfDevice(d.ID()); ok {
		out.Coords = at
		out.Process, _ = topology.TaskOfDevice(d.ID())
	}
	return out
}

// acceleratorType returns the accelerator type of the slice, and whether the type is known.
func (s *session) acceleratorType() (tpu.Accelerator, bool, error) {
	name := s.opts.Accelerator
	if cluster, ok := s.sys.Cluster(); name == "" && ok {
		name = cluster.TPU.AcceleratorType
	}
	if name == "" {
		return tpu.Accelerator{}, false, nil
	}
	a, err := tpu.ParseAccelerator(name)
	return a, err == nil, err
}

// checkDeviceTable compares the devices with the table for the slice type or, if the type is
// unknown, with the topology. It also checks that all hosts report the same devices.
func checkDeviceTable(ctx context.Context, w *partRun) error {
	sys := w.system()
	var found []Device
	for _, d := range sys.Runtime().Devices() {
		found = append(found, describeDevice(&d.DeviceDescription, sys.Topology()))
	}
	if seam := w.session.opts.Hooks.ChangeDevices; seam != nil {
		found = seam(w.session.report.Host, found)
	}
	for i, d := range found {
		if !sys.Addressable(d.ID) {
			continue
		}
		memory := "memory not told"
		if device, ok := sys.Device(d.ID); ok {
			if stats, err := device.MemoryStats(); err == nil && stats.BytesLimit > 0 {
				found[i].Memory = stats.BytesLimit
				memory = units.Bytes(stats.BytesLimit)
			}
		}
		w.addFact(fmt.Sprintf("device %d", d.ID), "%s at %v, process %d, %s", d.Kind, d.Coords, d.Process, memory)
	}
	a, known, err := w.session.acceleratorType()
	if err != nil {
		return err
	}
	expected := sys.Topology()
	var generation *tpu.Generation
	if known {
		if expected, err = a.Topology(); err != nil {
			return err
		}
		g := a.Generation()
		generation = &g
		w.addFact("type", "%s: %d chips, %d hosts, %d devices", a, a.Chips(), a.Hosts(), a.Devices())
	} else if sys.Platform() == "tpu" {
		w.addFinding(
			"the type of the slice is not known, so the devices are held against nothing: give --topology, such as v5litepod-16")
	}
	wrong, odd := CheckDevices(found, expected, generation)
	for _, text := range wrong {
		w.addFailure("%s", text)
	}
	for _, text := range odd {
		w.addFinding("%s", text)
	}
	for i := range found {
		found[i].Memory = 0 // a host knows only the memory of its own devices
	}
	view, err := json.Marshal(found)
	if err != nil {
		return err
	}
	return w.session.exchange.CheckSame(ctx, "the devices of the slice", string(view))
}

// CheckDevices compares the number, the coordinates and the processes of devices with a topology.
// It returns two lists of differences: differences that prevent programs from running, and all
// others. Each slice is compared separately.
func CheckDevices(found []Device, expected tpu.Topology, generation *tpu.Generation) (wrong, odd []string) {
	slicesOf := map[int][]Device{}
	ids := map[int]bool{}
	for _, d := range found {
		if ids[d.ID] {
			wrong = append(wrong, fmt.Sprintf("two devices have the id %d", d.ID))
		}
		ids[d.ID] = true
		slicesOf[d.Slice] = append(slicesOf[d.Slice], d)
	}
	if len(found) == 0 {
		return []string{"there are no devices"}, nil
	}
	for _, slice := range slices.Sorted(maps.Keys(slicesOf)) {
		w, o := checkSlice(slicesOf[slice], expected)
		wrong, odd = append(wrong, w...), append(odd, o...)
	}
	if generation == nil {
		return wrong, odd
	}
	whole := generation.HBMBytes / int64(generation.DevicesPerChip)
	for _, d := range found {
		if d.Memory > 0 && (d.Memory > whole || d.Memory < whole*8/10) {
			odd = append(odd, fmt.Sprintf("device %d has %s for programs, and a %s has %s", d.ID, units.Bytes(d.Memory),
				generation.Name, units.Bytes(whole)))
		}
	}
	return wrong, odd
}

func checkSlice(found []Device, expected tpu.Topology) (wrong, odd []string) {
	want := map[[4]int]int{} // task by coordinates
	for task, places := range expected.DeviceCoordinates() {
		for _, at := range places {
			want[at] = task
		}
	}
	if len(found) != len(want) {
		wrong = append(wrong, fmt.Sprintf("%d devices, and %d are right", len(found), len(want)))
	}
	corner := found[0].Coords
	for _, d := range found {
		for i := range 3 {
			corner[i] = min(corner[i], d.Coords[i])
		}
	}
	corner[3] = 0
	seen, processes := map[[4]int]Device{}, map[int][]int{} // processes: tasks of the table, by process
	for _, d := range found {
		at := d.Coords
		for i := range 3 {
			at[i] -= corner[i]
		}
		if other, twice := seen[at]; twice {
			wrong = append(wrong, fmt.Sprintf("devices %d and %d are both at %v", other.ID, d.ID, d.Coords))
		}
		seen[at] = d
		task, ok := want[at]
		if !ok {
			wrong = append(wrong, fmt.Sprintf("device %d is at %v, which the mesh %v does not have", d.ID, d.Coords,
				expected.MeshShape()))
			continue
		}
		if !slices.Contains(processes[d.Process], task) {
			processes[d.Process] = append(processes[d.Process], task)
		}
	}
	var missing []string
	for task, places := range expected.DeviceCoordinates() {
		for _, at := range places {
			if _, ok := seen[at]; !ok {
				missing = append(missing, fmt.Sprintf("%v of host %d", at, task))
			}
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		wrong = append(wrong, "no device at "+strings.Join(missing[:min(len(missing), 8)], ", "))
	}
	if corner != [4]int{} {
		odd = append(odd, fmt.Sprintf("the coordinates begin at %v", corner[:3]))
	}
	if len(processes) != expected.NumTasks() {
		odd = append(odd, fmt.Sprintf("%d processes, and the table has %d hosts", len(processes), expected.NumTasks()))
	}
	numbers := slices.Sorted(maps.Keys(processes))
	for _, p := range numbers {
		switch tasks := processes[p]; {
		case len(tasks) > 1:
			slices.Sort(tasks)
			odd = append(odd, fmt.Sprintf("process %d has devices of the table's hosts %v", p, tasks))
		case tasks[0] != p-numbers[0]:
			odd = append(odd, fmt.Sprintf("process %d has the devices of the table's host %d", p, tasks[0]))
		}
	}
	return wrong, odd
}
