package pjrt

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tpustrategy/tpustrategy/internal/protoint"
)

// CompileOptions say for which devices and how to compile. The zero value is one device of the
// plugin's choice, and no partitioner.
type CompileOptions struct {
	// Replicas is the number of copies of the program, and Partitions the number of devices of each
	// copy; 0 means 1.
	Replicas, Partitions int
	// DeviceAssignment has at [replica][partition] a global device id; nil leaves the choice to the
	// plugin.
	DeviceAssignment [][]int
	// SPMD has the compiler partition one program over Partitions devices.
	SPMD bool
	// Shardy has the compiler read Shardy's shardings (sdy.) instead of GSPMD's. A program with
	// custom calls of GSPMD, such as @Sharding, ends the compiler's process then.
	Shardy bool
	// DumpDir, if set, is a directory on the machine that compiles. The compiler writes the program
	// there as it is before and after optimization (XLA's --xla_dump_to).
	DumpDir string
	// Overrides are XLA debug options by name, such as "xla_dump_hlo_as_text": string, bool, int,
	// int64 or float64 values. An unknown name or a wrong type is the plugin's error; a senseless
	// value can end the process. For a CPU client two options are false unless they are set here.
	// xla_cpu_enable_fast_min_max: XLA's fast maximum and minimum, of single values and of reductions,
	// drop NaN. (So do the maxima of float32 that xla_cpu_experimental_ynn_fusion_type makes faster.)
	// xla_cpu_use_xnnpack: with XNNPACK's large products of float32, GoMLX's example for CIFAR learns
	// nothing on one device, and on two devices it stops in a reduction for ever.
	Overrides map[string]any
}

const splitCount = "xla_cpu_parallel_codegen_split_count"

// onCPU are the options that the CPU plugin computes correctly with.
var onCPU = map[string]any{"xla_cpu_enable_fast_min_max": false, "xla_cpu_use_xnnpack": false}

// On returns o with what is the default for a platform, such as "cpu": what a program on it is compiled
// with.
func (o CompileOptions) On(platform string) CompileOptions {
	if platform != "cpu" {
		return o
	}
	overrides := maps.Clone(onCPU)
	maps.Copy(overrides, o.Overrides)
	o.Overrides = overrides
	return o
}

// maxDevices bounds replicas times partitions, over the largest slice known.
const maxDevices = 1 << 20

func checkCounts(replicas, partitions, devices int) error {
	switch {
	case replicas < 1 || replicas > maxDevices:
		return compileError("Replicas", "%d is not from 1 to %d", replicas, maxDevices)
	case partitions < 1 || partitions > maxDevices:
		return compileError("Partitions", "%d is not from 1 to %d", partitions, maxDevices)
	case replicas*partitions > devices:
		return compileError("Replicas", "%d replicas of %d partitions need %d devices, there are %d", replicas, partitions, replicas*partitions, devices)
	}
	return nil
}

// encode checks the options against the devices there are and writes a CompileOptionsProto. known
// says whether a device id exists.
func (o CompileOptions) encode(devices int, known func(id int) bool) ([]byte, error) {
	replicas, partitions := cmp.Or(o.Replicas, 1), cmp.Or(o.Partitions, 1)
	if err := checkCounts(replicas, partitions, devices); err != nil {
		return nil, err
	}
	if err := o.checkAssignment(replicas, partitions, known); err != nil {
		return nil, err
	}

	// ExecutableBuildOptionsProto. -1 leaves the device to the assignment.
	build := protoint.AppendInt(nil, 1, -1)
	build = protoint.AppendInt(build, 4, int64(replicas))
	build = protoint.AppendInt(build, 5, int64(partitions))
	if o.SPMD {
		build = protoint.AppendInt(build, 6, 1)
	}
	if o.DeviceAssignment != nil {
		build = protoint.AppendBytes(build, 9, assignmentProto(o.DeviceAssignment))
	}
	if o.Shardy {
		build = protoint.AppendInt(build, 19, 1)
	}

	out := protoint.AppendBytes(nil, 3, build)
	overrides := maps.Clone(o.Overrides)
	if o.DumpDir != "" {
		if strings.ContainsRune(o.DumpDir, 0) {
			return nil, compileError("DumpDir", "it holds a NUL")
		}
		if overrides == nil {
			overrides = map[string]any{}
		}
		if _, twice := overrides["xla_dump_to"]; twice {
			return nil, &CompileError{Field: "Overrides", Reason: "xla_dump_to is set by DumpDir too", Hint: "set one of them"}
		}
		overrides["xla_dump_to"] = o.DumpDir
	}
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		value, err := overrideProto(name, overrides[name])
		if err != nil {
			return nil, err
		}
		entry := protoint.AppendBytes(nil, 1, []byte(name))
		out = protoint.AppendBytes(out, 7, protoint.AppendBytes(entry, 2, value))
	}
	return out, nil
}

func (o CompileOptions) checkAssignment(replicas, partitions int, known func(id int) bool) error {
	if o.DeviceAssignment == nil {
		return nil
	}
	if len(o.DeviceAssignment) != replicas {
		return compileError("DeviceAssignment", "it has %d replicas, Replicas is %d", len(o.DeviceAssignment), replicas)
	}
	seen := map[int][2]int{}
	for r, row := range o.DeviceAssignment {
		if len(row) != partitions {
			return compileError("DeviceAssignment", "replica %d has %d partitions, Partitions is %d", r, len(row), partitions)
		}
		for p, id := range row {
			if at, twice := seen[id]; twice {
				return compileError("DeviceAssignment", "device %d is at replica %d, partition %d and at replica %d, partition %d", id, at[0], at[1], r, p)
			}
			if known != nil && !known(id) {
				return compileError("DeviceAssignment", "replica %d, partition %d: there is no device %d", r, p, id)
			}
			seen[id] = [2]int{r, p}
		}
	}
	return nil
}

// assignmentProto is a DeviceAssignmentProto, which lists per partition the devices of all
// replicas.
func assignmentProto(a [][]int) []byte {
	partitions := len(a[0])
	out := protoint.AppendInt(nil, 1, int64(len(a)))
	out = protoint.AppendInt(out, 2, int64(partitions))
	for p := range partitions {
		ids := make([]int, len(a))
		for r := range a {
			ids[r] = a[r][p]
		}
		out = protoint.AppendBytes(out, 3, protoint.AppendInts(nil, 1, ids))
	}
	return out
}

// readAssignment is the inverse of assignmentProto.
func readAssignment(b []byte) ([][]int, error) {
	var replicas, partitions uint64
	var columns [][]int64
	err := eachField(b, func(n protowire.Number, v uint64, m []byte) error {
		switch n {
		case 1:
			replicas = v
		case 2:
			partitions = v
		case 3:
			var column []int64
			err := eachField(m, func(n protowire.Number, v uint64, m []byte) (err error) {
				if n == 1 {
					column, err = integers(column, v, m)
				}
				return err
			})
			columns = append(columns, column)
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if uint64(len(columns)) != partitions {
		return nil, fmt.Errorf("%w: a device assignment of %d partitions has %d", errHLO, partitions, len(columns))
	}
	for _, c := range columns {
		if uint64(len(c)) != replicas {
			return nil, fmt.Errorf("%w: a device assignment of %d replicas has %d", errHLO, replicas, len(c))
		}
	}
	if partitions == 0 {
		return nil, fmt.Errorf("%w: an empty device assignment", errHLO)
	}
	out := make([][]int, replicas)
	for r := range out {
		out[r] = make([]int, partitions)
		for p := range out[r] {
			out[r][p] = int(columns[p][r])
		}
	}
	return out, nil
}

// CheckOverrides says what is wrong with names and types of [CompileOptions].Overrides, in a
// [*CompileError], before anything is compiled. It does not know which options a plugin has.
func CheckOverrides(overrides map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		if _, err := overrideProto(name, overrides[name]); err != nil {
			return err
		}
	}
	return nil
}

// overrideProto is an OptionOverrideProto.
func overrideProto(name string, value any) ([]byte, error) {
	if name == "" {
		return nil, compileError("Overrides", "an option has no name")
	}
	if v, ok := value.(int); ok {
		value = int64(v)
	}
	if name == splitCount {
		if err := checkParts(value); err != nil {
			return nil, err
		}
	}
	switch v := value.(type) {
	case string:
		return protoint.AppendBytes(nil, 1, []byte(v)), nil
	case bool:
		return protoint.AppendInt(nil, 2, int64(protowire.EncodeBool(v))), nil
	case int64:
		return protoint.AppendInt(nil, 3, v), nil
	case float64:
		return protowire.AppendFixed64(protowire.AppendTag(nil, 4, protowire.Fixed64Type), math.Float64bits(v)), nil
	}
	return nil, &CompileError{Field: "Overrides", Reason: fmt.Sprintf("%s: type %T cannot be passed", name, value), Hint: "use string, bool, int, int64 or float64"}
}

// maxParts bounds the parts into which the CPU's compiler splits a program, each a copy of the
// whole: no machine has the processors, or the memory, for more.
const maxParts = 1024

// checkParts checks the number of parts, which XLA reads of a text too.
func checkParts(value any) error {
	n, ok := value.(int64)
	if text, is := value.(string); is {
		var err error
		n, err = strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		ok = err == nil
	}
	switch {
	case !ok:
		return &CompileError{Field: "Overrides", Reason: fmt.Sprintf("%s: %v is no whole number", splitCount, value), Hint: "give an int"}
	case n < 0:
		return compileError("Overrides", "%s: %d is below 0, which ends the process", splitCount, n)
	case n > maxParts:
		return &CompileError{Field: "Overrides", Reason: fmt.Sprintf("%s: %d parts, each of which takes the memory of the whole", splitCount, n), Hint: fmt.Sprintf("give at most %d", maxParts)}
	}
	return nil
}
