package valuecases

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// opInput contains the arguments of the function that creates the sharding.
type opInput struct {
	Logical   int             `json:"num_logical_devices"`
	Shape     []*int          `json:"tensor_shape"`
	Arg       json.RawMessage `json:"arg"`
	Fn        string          `json:"fn"`
	Core      int             `json:"core"`
	Tiles     any             `json:"tile_assignment"`
	Modes     any             `json:"subgroup_modes"`
	SplitDim  int             `json:"split_dimension"`
	Devices   int             `json:"num_devices"`
	Override  []*int          `json:"input_shape"`
	Mesh      any             `json:"device_mesh"`
	Mapping   []int           `json:"tensor_split_dims_mapping"`
	Manual    []int           `json:"manual_mesh_dims"`
	Outputs   int             `json:"outputs"`
	Output    int             `json:"value_index"`
	Device    int             `json:"device"`
	AsTuple   bool            `json:"assign_tuple_sharding"`
	UseOp     bool            `json:"use_sharding_op"`
	Unnamed   []int           `json:"unspecified_dims"`
	UnsetSPMD bool            `json:"experimental_spmd_xla_partitioning"`
}

// opOutput contains a sharding in several encodings.
type opOutput struct {
	Hex    string              `json:"serialized_hex"`
	Shards map[string][][2]int `json:"shards"`
	HLO    string              `json:"hlo_sharding"`
	XLAHex string              `json:"hlo_roundtrip_hex"`
	Iota   string              `json:"hlo_sharding_iota"`
	// Refused is XLA's error for a sharding that TensorFlow does not validate.
	Refused string `json:"hlo_error"`
	// The following fields repeat the sharding in other encodings.
	Proto any    `json:"proto"`
	Text  string `json:"text"`
	Same  *bool  `json:"iota_equals_explicit"`
}

type opGolden struct {
	Name, API string
	Raw       json.RawMessage `json:"input"`
	RawOutput json.RawMessage `json:"output"`
	Input     opInput         `json:"-"`
	Output    *opOutput       `json:"-"`
	Error     *struct{ Message string }
}

// Shardings returns the cases of a file of OpShardings. They run on packages sharding and tpu.
func Shardings(data []byte) ([]Case, error) {
	var all struct {
		Cases     []opGolden
		TileShape []struct {
			Hex    *string `json:"serialized_hex"`
			Result []int
		} `json:"get_sharding_tile_shape"`
		Tables []deviceTable `json:"device_tables"`
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	var cases []Case
	for _, g := range all.Cases {
		cases = append(cases, Case{g.API, g.Name, func(c *T) {
			Strictly(c, g.Raw, &g.Input)
			if g.RawOutput != nil {
				Strictly(c, g.RawOutput, &g.Output)
			}
			checkOpCase(c, g)
		}})
	}
	for _, x := range all.Tables {
		cases = append(cases, Case{"device_tables", x.Name, func(c *T) { checkTable(c, x) }})
	}
	for _, x := range all.TileShape {
		if x.Hex == nil { // no sharding
			continue
		}
		cases = append(cases, Case{"get_sharding_tile_shape", "proto " + *x.Hex, func(c *T) {
			op, err := sharding.ParseOpShardingProto(unhex(c, *x.Hex))
			require.NoError(c, err)
			want := x.Result
			// TensorFlow counts subgroup dimensions, although its documentation excludes them.
			if n := len(op.Subgroups()); n > 0 {
				want = want[:len(want)-n]
			}
			assert.Equal(c, want, op.TileShape())
		}})
	}
	return cases, nil
}

func checkOpCase(c *T, g opGolden) {
	if g.Output == nil && g.Input.UnsetSPMD && strings.HasSuffix(g.API, "assign_to_logical_device") {
		c.NotApplicable(AssignSPMD)
	}
	if g.Output == nil && slices.Contains(modesOf(g.Input), "UNREDUCED") {
		c.NotApplicable(Unreduced)
	}
	if g.Output == nil && len(g.Input.Unnamed) > 0 && !g.Input.UseOp {
		c.NotApplicable(NoShardingOp)
	}
	op, err := buildOp(c, g)
	if g.Output == nil || g.Output.Refused != "" || g.Input.Core < 0 || g.Input.Device < 0 {
		assert.ErrorContains(c, err, "sharding: ")
		return
	}
	require.NoError(c, err)
	checkOp(c.T, op, g)
}

// deviceTable contains the device name of every logical device of every replica.
type deviceTable struct {
	Name     string
	Mesh     []int
	Shape    []int      `json:"computation_shape"`
	Replicas *int       `json:"num_replicas"`
	Devices  [][]string `json:"tpu_devices"`
	Host     string     `json:"host_device"`
}

// perHost is the block of chips of a host, by TPU generation.
var perHost = map[string][3]int{"v2": {2, 2, 1}, "v3": {2, 2, 1}, "v4": {2, 2, 1}, "v5p": {2, 2, 1}}

// blockOf returns the block of chips of a host. The generation determines the block. If the hosts
// of a generation differ, it is the block with as many devices as the hosts in the table.
func blockOf(x deviceTable) ([3]int, bool) {
	for generation, block := range perHost {
		if strings.HasPrefix(x.Name, generation) {
			return block, true
		}
	}
	devices := 0
	for _, row := range x.Devices {
		for _, name := range row {
			ordinal, err := strconv.Atoi(name[strings.LastIndexByte(name, ':')+1:])
			if err == nil {
				devices = max(devices, ordinal+1)
			}
		}
	}
	for _, block := range [][3]int{{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {2, 2, 1}, {2, 4, 1}, {4, 2, 1}} {
		fits := true
		for i, n := range block {
			fits = fits && x.Mesh[i]%n == 0
		}
		if fits && block[0]*block[1]*block[2]*x.Mesh[3] == devices {
			return block, true
		}
	}
	return [3]int{}, false
}

// checkTable builds the slice from the blocks of its hosts and compares its device assignment.
func checkTable(c *T, x deviceTable) {
	if len(x.Mesh) != tpu.MeshRank {
		c.Unmapped("slice of %q", x.Name)
	}
	block, ok := blockOf(x)
	if !ok {
		c.Unmapped("slice of %q", x.Name)
	}
	var tasks [][]tpu.Coordinates
	for z := 0; z < x.Mesh[2]; z += block[2] {
		for y := 0; y < x.Mesh[1]; y += block[1] {
			for px := 0; px < x.Mesh[0]; px += block[0] {
				var task []tpu.Coordinates
				for dz := range block[2] {
					for dy := range block[1] {
						for dx := range block[0] {
							for core := range x.Mesh[3] {
								task = append(task, tpu.Coordinates{px + dx, y + dy, z + dz, core})
							}
						}
					}
				}
				tasks = append(tasks, task)
			}
		}
	}
	topology, err := tpu.NewTopology(tpu.TopologyOptions{MeshShape: x.Mesh, DeviceCoordinates: tasks})
	require.NoError(c, err)
	var a tpu.DeviceAssignment
	if x.Replicas == nil { // no assignment: one replica per device, in task order
		var cores [][]tpu.Coordinates
		for _, task := range tasks {
			for _, core := range task {
				cores = append(cores, []tpu.Coordinates{core})
			}
		}
		a, err = tpu.NewDeviceAssignment(topology, cores)
	} else {
		a, err = tpu.BuildDeviceAssignment(topology, tpu.AssignmentOptions{ComputationShape: x.Shape, Replicas: *x.Replicas})
	}
	require.NoError(c, err)
	require.Len(c, x.Devices, a.NumReplicas())
	for r, row := range x.Devices {
		for p, want := range row {
			got, err := a.TPUDevice(r, p, "worker")
			require.NoError(c, err)
			assert.Equal(c, strings.Replace(want, "/replica:0", "", 1), got)
		}
	}
	host, err := a.HostDevice(0, 0, "worker")
	require.NoError(c, err)
	assert.Equal(c, strings.Replace(x.Host, "/replica:0", "", 1), host)
}

func checkOp(t *testing.T, op sharding.OpSharding, c opGolden) {
	want := c.Output
	// A sharding with a mesh or subgroups has several equivalent encodings. The code below compares
	// such shardings in normalized form.
	if mesh := c.Input.Mesh != nil; !mesh && len(op.Subgroups()) == 0 {
		assert.Equal(t, want.Hex, hex.EncodeToString(op.MarshalProto()))
		assert.Equal(t, want.HLO, op.Canonical().String())
	}
	for _, wire := range []string{want.Hex, want.XLAHex} {
		back, err := sharding.ParseOpShardingProto(unhex(t, wire))
		require.NoError(t, err)
		assert.True(t, back.Canonical().Equal(op.Canonical()), "%s: %v", wire, back)
	}
	for _, text := range []string{want.HLO, want.Iota} {
		if text == "" {
			continue
		}
		back, err := sharding.ParseOpSharding(text)
		require.NoError(t, err)
		assert.True(t, back.Canonical().Equal(op.Canonical()), "%s: %v", text, op.Canonical())
		again, err := sharding.ParseOpSharding(back.String())
		require.NoError(t, err)
		assert.True(t, again.Equal(back), "%s: %s", text, back)
	}
	for device, want := range want.Shards {
		number := 5 // for "*", any device is valid
		if device != "*" {
			var err error
			number, err = strconv.Atoi(device)
			require.NoError(t, err)
		}
		shape := sizes(c.Input.Shape)
		if c.Input.Override != nil {
			shape = sizes(c.Input.Override)
		}
		got, holds, err := op.IndexRanges(shape, number)
		require.NoError(t, err)
		assert.True(t, holds)
		ranges := make([]sharding.Range, len(want))
		for i, r := range want {
			ranges[i] = sharding.Range{Start: r[0], Stop: r[1]}
		}
		assert.Equal(t, ranges, got, "device %s", device)
	}
}

func buildOp(t *T, c opGolden) (sharding.OpSharding, error) {
	in := c.Input
	switch c.API {
	case "TPUStrategy.experimental_assign_to_logical_device":
		var logical int
		require.NoError(t, json.Unmarshal(in.Arg, &logical))
		return sharding.AssignToLogicalDevice(logical, in.Logical)
	case "TPUStrategy.experimental_replicate_to_logical_devices":
		return sharding.ReplicateToLogicalDevices(), nil
	case "TPUStrategy.experimental_split_to_logical_devices":
		var partitions []int
		require.NoError(t, json.Unmarshal(in.Arg, &partitions))
		return sharding.SplitToLogicalDevices(sizes(in.Shape), partitions, in.Logical)
	}
	fn := in.Fn
	if fn == "" { // applied to a tensor, alone or as one of an op's outputs
		fn = c.API[strings.LastIndexByte(c.API, '.')+1:]
		in.Core += in.Device
	}
	op, err := buildFunction(t, c, fn, in)
	if err == nil && in.AsTuple && in.UseOp {
		op = sharding.OpReplicated() // TensorFlow drops the sharding
	}
	if err == nil && (in.AsTuple || in.Outputs > 0) {
		elements := make([]sharding.OpSharding, max(in.Outputs, 1))
		require.Less(t, in.Output, len(elements))
		elements[in.Output] = op
		return sharding.OpTuple(elements...)
	}
	return op, err
}

func buildFunction(t *T, c opGolden, fn string, in opInput) (sharding.OpSharding, error) {
	switch fn {
	case "replicate":
		return sharding.OpReplicated(), nil
	case "manual":
		return sharding.OpManual(), nil
	case "assign_device":
		return sharding.OpMaximal(in.Core)
	case "tile":
		return sharding.OpTile(array(in.Tiles))
	case "partial_tile":
		return sharding.OpPartialTile(array(in.Tiles))
	case "subgroup_tile":
		dims, devices := array(in.Tiles)
		kinds := map[string]sharding.Kind{"MANUAL": sharding.KindManual, "REPLICATED": sharding.KindReplicated,
			"UNREDUCED": sharding.KindUnreduced,
			"UNKNOWN":   sharding.KindUnknown, "MAXIMAL": sharding.KindMaximal, "OTHER": sharding.KindTiled,
			"TUPLE": sharding.KindTuple}
		var modes []sharding.Kind
		for _, mode := range modesOf(in) {
			kind, ok := kinds[mode]
			if !ok {
				t.Unmapped("modes %v", in.Modes)
			}
			modes = append(modes, kind)
		}
		return sharding.OpSubgroupTile(dims, devices, modes...)
	case "split":
		shape := sizes(in.Shape)
		if len(in.Override) > 0 { // an empty shape counts as absent
			shape = sizes(in.Override)
		}
		return sharding.OpSplit(shape, in.SplitDim, in.Devices)
	case "mesh_split_sharding", "mesh_split":
		dims, devices := array(in.Mesh)
		return sharding.OpMeshSplit(dims, devices, in.Mapping, in.Manual)
	}
	t.Unmapped("%s %s", c.API, fn)
	return sharding.OpSharding{}, nil
}

// modesOf returns the names of the modes of a case's subgroups.
func modesOf(in opInput) []string {
	list, _ := in.Modes.([]any)
	var modes []string
	for _, mode := range list {
		if name, ok := mode.(string); ok {
			modes = append(modes, name)
		}
	}
	return modes
}

// array returns the dimensions and the elements of a nested list.
func array(v any) (dims, elements []int) {
	list, ok := v.([]any)
	if !ok {
		return nil, []int{int(v.(float64))}
	}
	for i, item := range list {
		inner, more := array(item)
		if i == 0 {
			dims = append([]int{len(list)}, inner...)
		}
		elements = append(elements, more...)
	}
	return dims, elements
}

func sizes(shape []*int) []int {
	if shape == nil {
		return nil
	}
	out := make([]int, len(shape))
	for i, n := range shape {
		out[i] = sharding.UnknownSize
		if n != nil {
			out[i] = *n
		}
	}
	return out
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	require.NoError(t, err)
	return b
}
