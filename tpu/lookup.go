package tpu

import (
	"fmt"
	"slices"
)

// Name returns the name of the topology, or "".
func (t Topology) Name() string { return t.name }

// MeshShape returns the size of the mesh in x, y, z and core (TensorFlow's Topology.mesh_shape).
func (t Topology) MeshShape() [MeshRank]int { return t.mesh }

// MeshRank returns the number of axes of the mesh, which is always 4 (TensorFlow's Topology.mesh_rank).
func (t Topology) MeshRank() int { return MeshRank }

// NumTasks returns the number of tasks, which are the processes of the job (TensorFlow's
// Topology.num_tasks).
func (t Topology) NumTasks() int { return t.tasks }

// NumTPUsPerTask returns the number of devices of each task (TensorFlow's Topology.num_tpus_per_task).
func (t Topology) NumTPUsPerTask() int { return t.perTask }

// NumDevices returns the total number of devices.
func (t Topology) NumDevices() int { return len(t.coords) }

// DeviceCoordinates returns a copy of the coordinates, by task and device (TensorFlow's
// Topology.device_coordinates).
func (t Topology) DeviceCoordinates() [][]Coordinates {
	return splitByTask(t.coords, t.tasks, t.perTask)
}

// DeviceIDs returns a copy of the runtime's device ids, by task and device.
func (t Topology) DeviceIDs() [][]int { return splitByTask(t.ids, t.tasks, t.perTask) }

func splitByTask[T any](flat []T, tasks, perTask int) [][]T {
	rows := make([][]T, tasks)
	for task := range rows {
		rows[task] = slices.Clone(flat[task*perTask : (task+1)*perTask])
	}
	return rows
}

// MissingDevices returns the coordinates in the mesh that have no device, with core fastest and x
// slowest (TensorFlow's Topology.missing_devices).
func (t Topology) MissingDevices() []Coordinates {
	var missing []Coordinates
	for place, i := range t.deviceByPosition {
		if i < 0 {
			missing = append(missing, coordinatesAt(place, t.mesh))
		}
	}
	return missing
}

func (t Topology) hasMissing() bool { return len(t.coords) < len(t.deviceByPosition) }

// coordinatesAt converts a row-major position in a mesh, with the last axis fastest, to coordinates.
func coordinatesAt(position int, mesh Coordinates) (c Coordinates) {
	for i := MeshRank - 1; i >= 0; i-- {
		c[i] = position % mesh[i]
		position /= mesh[i]
	}
	return c
}

// The following methods return properties of the device with index i. Devices are indexed by task.

func (t Topology) taskAt(i int) int    { return i / t.perTask }
func (t Topology) ordinalAt(i int) int { return i % t.perTask }
func (t Topology) idAt(i int) int      { return t.ids[i] }

func (t Topology) tpuNameFunc(job string) func(i int) string {
	return func(i int) string { return deviceName(job, t.taskAt(i), "TPU", t.ordinalAt(i)) }
}

func (t Topology) hostNameFunc(job string) func(i int) string {
	return func(i int) string { return deviceName(job, t.taskAt(i), "CPU", 0) }
}

// deviceProperty returns a property of the device at coordinates c. property returns the property
// of the device with a given index.
func deviceProperty[T any](t Topology, c Coordinates, property func(i int) T) (value T, err error) {
	i, err := t.deviceIndex(c)
	if err != nil {
		return value, err
	}
	return property(i), nil
}

// TaskOrdinalAtCoordinates returns the task of the device at coordinates c (TensorFlow's
// Topology.task_ordinal_at_coordinates). If c is outside the mesh or its device is missing, it
// returns an error.
func (t Topology) TaskOrdinalAtCoordinates(c Coordinates) (int, error) {
	return deviceProperty(t, c, t.taskAt)
}

// TPUDeviceOrdinalAtCoordinates returns the index, within its task, of the device at coordinates c
// (TensorFlow's Topology.tpu_device_ordinal_at_coordinates).
func (t Topology) TPUDeviceOrdinalAtCoordinates(c Coordinates) (int, error) {
	return deviceProperty(t, c, t.ordinalAt)
}

// DeviceIDAtCoordinates returns the runtime's id of the device at coordinates c.
func (t Topology) DeviceIDAtCoordinates(c Coordinates) (int, error) {
	return deviceProperty(t, c, t.idAt)
}

// CoordinatesOfDevice returns the coordinates of the device with the given id, and whether the
// device exists.
func (t Topology) CoordinatesOfDevice(id int) (Coordinates, bool) {
	i, ok := t.byID[id]
	if !ok {
		return Coordinates{}, false
	}
	return t.coords[i], true
}

// TaskOfDevice returns the task of the device with the given id, and whether the device exists.
func (t Topology) TaskOfDevice(id int) (int, bool) {
	i, ok := t.byID[id]
	if !ok {
		return 0, false
	}
	return int(i) / t.perTask, true
}

// TPUDeviceNameAtCoordinates returns the name of the device at coordinates c, such as
// /job:worker/task:0/device:TPU:3. If job is "", the name starts with the task (TensorFlow's
// Topology.tpu_device_name_at_coordinates).
func (t Topology) TPUDeviceNameAtCoordinates(c Coordinates, job string) (string, error) {
	return deviceProperty(t, c, t.tpuNameFunc(job))
}

// CPUDeviceNameAtCoordinates returns the name of the CPU device on the host of the device at coordinates
// c, such as /job:worker/task:0/device:CPU:0 (TensorFlow's Topology.cpu_device_name_at_coordinates).
func (t Topology) CPUDeviceNameAtCoordinates(c Coordinates, job string) (string, error) {
	return deviceProperty(t, c, t.hostNameFunc(job))
}

func deviceName(job string, task int, kind string, ordinal int) string {
	if job != "" {
		job = "/job:" + job
	}
	return fmt.Sprintf("%s/task:%d/device:%s:%d", job, task, kind, ordinal)
}
