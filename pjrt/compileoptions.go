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

// CompileOptions specifies the devices of a program and the options of the compiler. The zero value
// compiles without partitioning for one device, which the plugin chooses.
type CompileOptions struct {
	// Replicas is the number of copies of the program. Partitions is the number of devices of each
	// copy. 0 means 1.
	Replicas, Partitions int
	// DeviceAssignment contains global device ids, indexed by replica and partition. If it is nil,
	// the plugin chooses the devices.
	DeviceAssignment [][]int
	// SPMD makes the compiler partition one program over Partitions devices.
	SPMD bool
	// Shardy makes the compiler use Shardy's sharding annotations (sdy.) instead of GSPMD's. The
	// compiler then aborts the process if the program contains custom calls of GSPMD, such as @Sharding.
	Shardy bool
	// DumpDir, if not empty, is a directory on the compiling machine. The compiler writes the
	// program there before and after optimization (XLA's --xla_dump_to).
	DumpDir string
	// Overrides are XLA debug options by name, such as "xla_dump_hlo_as_text". Values are string,
	// bool, int, int64 or float64. The plugin reports unknown names and wrong types; some values
	// abort the process.
	//
	// Two options default to false on CPU clients. With xla_cpu_enable_fast_min_max, XLA's maximum
	// and minimum do not propagate NaN; float32 maxima that xla_cpu_experimental_ynn_fusion_type
	// accelerates have the same problem. With xla_cpu_use_xnnpack, large float32 matrix products are
	// wrong: GoMLX's CIFAR example does not learn on one device and deadlocks in a reduction on two.
	Overrides map[string]any
}

const splitCountOption = "xla_cpu_parallel_codegen_split_count"

// cpuDefaults are overrides that the CPU plugin needs for correct results.
var cpuDefaults = map[string]any{"xla_cpu_enable_fast_min_max": false, "xla_cpu_use_xnnpack": false}

// WithPlatformDefaults returns o with the platform's default compile options added. platform is a
// name such as "cpu".
func (o CompileOptions) WithPlatformDefaults(platform string) CompileOptions {
	if platform != "cpu" {
		return o
	}
	overrides := maps.Clone(cpuDefaults)
	maps.Copy(overrides, o.Overrides)
	o.Overrides = overrides
	return o
}

// maxDevices is the maximum of Replicas times Partitions. It is larger than any existing slice.
const maxDevices = 1 << 20

func checkCounts(replicas, partitions, devices int) error {
	switch {
	case replicas < 1 || replicas > maxDevices:
		return compileError("Replicas", "%d is not between 1 and %d", replicas, maxDevices)
	case partitions < 1 || partitions > maxDevices:
		return compileError("Partitions", "%d is not between 1 and %d", partitions, maxDevices)
	case replicas*partitions > devices:
		return compileError("Replicas", "%d replicas of %d partitions need %d devices, but there are %d",
			replicas, partitions, replicas*partitions, devices)
	}
	return nil
}

// encode validates the options and returns an encoded CompileOptionsProto. devices is the number of
// devices, and hasDevice reports whether a device id exists.
func (o CompileOptions) encode(devices int, hasDevice func(id int) bool) ([]byte, error) {
	replicas, partitions := cmp.Or(o.Replicas, 1), cmp.Or(o.Partitions, 1)
	if err := checkCounts(replicas, partitions, devices); err != nil {
		return nil, err
	}
	if err := o.checkAssignment(replicas, partitions, hasDevice); err != nil {
		return nil, err
	}

	// build is an ExecutableBuildOptionsProto. Device ordinal -1 means that the assignment selects the
	// devices.
	build := protoint.AppendInt(nil, 1, -1)
	build = protoint.AppendInt(build, 4, int64(replicas))
	build = protoint.AppendInt(build, 5, int64(partitions))
	if o.SPMD {
		build = protoint.AppendInt(build, 6, 1)
	}
	if o.DeviceAssignment != nil {
		build = protoint.AppendBytes(build, 9, encodeAssignment(o.DeviceAssignment))
	}
	if o.Shardy {
		build = protoint.AppendInt(build, 19, 1)
	}

	out := protoint.AppendBytes(nil, 3, build)
	overrides := maps.Clone(o.Overrides)
	if o.DumpDir != "" {
		if strings.ContainsRune(o.DumpDir, 0) {
			return nil, compileError("DumpDir", "it contains a NUL byte")
		}
		if overrides == nil {
			overrides = map[string]any{}
		}
		if _, ok := overrides["xla_dump_to"]; ok {
			return nil, &CompileError{Field: "Overrides", Reason: "xla_dump_to and DumpDir are both set",
				Hint: "set only one of them"}
		}
		overrides["xla_dump_to"] = o.DumpDir
	}
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		value, err := encodeOverride(name, overrides[name])
		if err != nil {
			return nil, err
		}
		entry := protoint.AppendBytes(nil, 1, []byte(name))
		out = protoint.AppendBytes(out, 7, protoint.AppendBytes(entry, 2, value))
	}
	return out, nil
}

func (o CompileOptions) checkAssignment(replicas, partitions int, hasDevice func(id int) bool) error {
	if o.DeviceAssignment == nil {
		return nil
	}
	if len(o.DeviceAssignment) != replicas {
		return compileError("DeviceAssignment", "it has %d replicas, but Replicas is %d", len(o.DeviceAssignment),
			replicas)
	}
	seen := map[int][2]int{}
	for r, row := range o.DeviceAssignment {
		if len(row) != partitions {
			return compileError("DeviceAssignment", "replica %d has %d partitions, but Partitions is %d", r, len(row),
				partitions)
		}
		for p, id := range row {
			if first, ok := seen[id]; ok {
				return compileError("DeviceAssignment",
					"device %d is assigned to both replica %d, partition %d and replica %d, partition %d",
					id, first[0], first[1], r, p)
			}
			if hasDevice != nil && !hasDevice(id) {
				return compileError("DeviceAssignment", "replica %d, partition %d: device %d does not exist", r, p, id)
			}
			seen[id] = [2]int{r, p}
		}
	}
	return nil
}

// encodeAssignment returns an encoded DeviceAssignmentProto, which lists the devices of all
// replicas for each partition. assignment is indexed by replica and partition.
func encodeAssignment(assignment [][]int) []byte {
	partitions := len(assignment[0])
	out := protoint.AppendInt(nil, 1, int64(len(assignment)))
	out = protoint.AppendInt(out, 2, int64(partitions))
	for p := range partitions {
		ids := make([]int, len(assignment))
		for r := range assignment {
			ids[r] = assignment[r][p]
		}
		out = protoint.AppendBytes(out, 3, protoint.AppendInts(nil, 1, ids))
	}
	return out
}

// decodeAssignment decodes the result of encodeAssignment.
func decodeAssignment(b []byte) ([][]int, error) {
	var replicas, partitions uint64
	var columns [][]int64
	err := forEachField(b, func(n protowire.Number, v uint64, m []byte) error {
		switch n {
		case 1:
			replicas = v
		case 2:
			partitions = v
		case 3:
			var column []int64
			err := forEachField(m, func(n protowire.Number, v uint64, m []byte) (err error) {
				if n == 1 {
					column, err = appendIntegers(column, v, m)
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
		return nil, fmt.Errorf("%w: a device assignment for %d partitions lists %d", errMalformedHLO, partitions,
			len(columns))
	}
	for _, c := range columns {
		if uint64(len(c)) != replicas {
			return nil, fmt.Errorf("%w: a device assignment for %d replicas lists %d", errMalformedHLO, replicas, len(c))
		}
	}
	if partitions == 0 {
		return nil, fmt.Errorf("%w: an empty device assignment", errMalformedHLO)
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

// CheckOverrides checks the names and types of [CompileOptions].Overrides and returns a
// [*CompileError] for the first invalid one. It does not check whether the plugin has the options.
func CheckOverrides(overrides map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		if _, err := encodeOverride(name, overrides[name]); err != nil {
			return err
		}
	}
	return nil
}

// encodeOverride returns an encoded OptionOverrideProto.
func encodeOverride(name string, value any) ([]byte, error) {
	if name == "" {
		return nil, compileError("Overrides", "an option has no name")
	}
	if v, ok := value.(int); ok {
		value = int64(v)
	}
	if name == splitCountOption {
		if err := checkSplitCount(value); err != nil {
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
	return nil, &CompileError{Field: "Overrides",
		Reason: fmt.Sprintf("%s: values of type %T are not supported", name, value),
		Hint:   "use string, bool, int, int64 or float64"}
}

// maxSplitCount is the maximum number of parts into which the CPU compiler may split a program.
// Each part is a copy of the program, so larger numbers use too much memory.
const maxSplitCount = 1024

// checkSplitCount validates the value of the option for the number of parts into which the CPU
// compiler splits a program. XLA also accepts the number as a string.
func checkSplitCount(value any) error {
	n, ok := value.(int64)
	if text, is := value.(string); is {
		var err error
		n, err = strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		ok = err == nil
	}
	switch {
	case !ok:
		return &CompileError{Field: "Overrides", Reason: fmt.Sprintf("%s: %v is not an integer", splitCountOption, value),
			Hint: "use an int"}
	case n < 0:
		return compileError("Overrides", "%s: %d is negative, which aborts the process", splitCountOption, n)
	case n > maxSplitCount:
		return &CompileError{Field: "Overrides",
			Reason: fmt.Sprintf("%s: %d is too large, because each part uses the memory of the whole program",
				splitCountOption, n),
			Hint: fmt.Sprintf("use at most %d", maxSplitCount)}
	}
	return nil
}
