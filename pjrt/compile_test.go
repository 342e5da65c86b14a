package pjrt_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

// sharded is a Shardy module of two devices whose body calls a custom call.
func sharded(call string) pjrt.Program {
	return pjrt.Program{Code: []byte(`module { sdy.mesh @mesh = <["d"=2]>
 func.func public @main(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}) -> tensor<4xf32> {
  %o = ` + call + ` : (tensor<4xf32>) -> tensor<4xf32>
  return %o : tensor<4xf32> } }`)}
}

// hostile are programs that no compiler should take, with who has to say so: us, before the plugin
// (a CompileError), or the plugin (an Error).
var hostile = map[string]struct {
	p    pjrt.Program
	ours bool
}{
	"empty":                           {pjrt.Program{}, true},
	"an unknown format":               {pjrt.Program{Code: []byte("x"), Format: "onnx"}, true},
	"garbage":                         {pjrt.Program{Code: []byte("\x00\x01\x02\xff garbage")}, false},
	"truncated":                       {pjrt.Program{Code: addOne(2).Code[:200]}, false},
	"bytecode magic alone":            {pjrt.Program{Code: []byte("ML\xefR")}, true},
	"bytecode with a huge section":    {pjrt.Program{Code: []byte("ML\xefR\x0d\x01\x02\x03\x04\xff\xff\xff\xff")}, true},
	"an empty module":                 {pjrt.Program{Code: []byte("module {}")}, false},
	"no main":                         {pjrt.Program{Code: []byte("module { func.func @f() { return } }")}, false},
	"two mains":                       {pjrt.Program{Code: []byte("module { func.func @main() { return } func.func @main() { return } }")}, false},
	"an unknown operation":            {function("%x: tensor<4xf32>", "tensor<4xf32>", "%o = stablehlo.bogus %x : tensor<4xf32>\n return %o : tensor<4xf32>"), false},
	"an unknown dialect":              {function("%x: tensor<4xf32>", "tensor<4xf32>", "%o = \"foo.bar\"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n return %o : tensor<4xf32>"), false},
	"an unknown custom call":          {function("%x: tensor<4xf32>", "tensor<4xf32>", "%o = stablehlo.custom_call @nope(%x) : (tensor<4xf32>) -> tensor<4xf32>\n return %o : tensor<4xf32>"), false},
	"a wrong result type":             {function("%x: tensor<4xf32>", "tensor<5xf32>", "return %x : tensor<4xf32>"), false},
	"a dynamic dimension":             {function("%x: tensor<?xf32>", "tensor<?xf32>", "%o = stablehlo.add %x, %x : tensor<?xf32>\n return %o : tensor<?xf32>"), false},
	"an alias to no result":           {function("%x: tensor<4xf32> {tf.aliasing_output = 7 : i32}", "tensor<4xf32>", "return %x : tensor<4xf32>"), false},
	"two aliases to one result":       {function("%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %y: tensor<4xf32> {tf.aliasing_output = 0 : i32}", "tensor<4xf32>", "return %x : tensor<4xf32>"), false},
	"an unknown mesh":                 {pjrt.Program{Code: []byte(strings.ReplaceAll(string(addOne(2).Code), "<@mesh,", "<@nomesh,"))}, false},
	"an unknown axis":                 {pjrt.Program{Code: []byte(strings.ReplaceAll(string(addOne(2).Code), `{"d"}`, `{"e"}`))}, false},
	"a garbage HLO proto":             {pjrt.Program{Code: []byte("garbage\xff"), Format: pjrt.FormatHLO}, true},
	"an empty HLO module":             {pjrt.Program{Code: []byte{0x0a, 0}, Format: pjrt.FormatHLO}, true},
	"a format of other plugins":       {pjrt.Program{Code: []byte("x"), Format: pjrt.FormatHLOWithConfig}, true},
	"dimensions beyond memory":        {function("%x: tensor<99999999999x99999999999xf32>", "tensor<99999999999x99999999999xf32>", "return %x : tensor<99999999999x99999999999xf32>"), true},
	"a dimension of thirty digits":    {function("%x: tensor<999999999999999999999999999999xf32>", "tensor<f32>", ""), true},
	"lists nested deep":               {pjrt.Program{Code: []byte("module attributes {a = " + strings.Repeat("[", 1e5) + strings.Repeat("]", 1e5) + "} {}")}, true},
	"modules nested deep":             {pjrt.Program{Code: []byte(strings.Repeat("module {", 1e5) + strings.Repeat("}", 1e5))}, true},
	"types nested deep":               {function("%x: "+strings.Repeat("tuple<", 1e5)+"tensor<f32>"+strings.Repeat(">", 1e5), "tensor<f32>", ""), true},
	"a main that calls itself":        {function("%x: tensor<f32>", "tensor<f32>", "%o = func.call @main(%x) : (tensor<f32>) -> tensor<f32>\n return %o : tensor<f32>"), true},
	"functions that call in a circle": {pjrt.Program{Code: []byte("module {\nfunc.func public @main(%x: tensor<f32>) -> tensor<f32> { %o = func.call @a(%x) : (tensor<f32>) -> tensor<f32>\n return %o : tensor<f32> }\nfunc.func private @a(%x: tensor<f32>) -> tensor<f32> { %o = call @b(%x) : (tensor<f32>) -> tensor<f32>\n return %o : tensor<f32> }\nfunc.func private @b(%x: tensor<f32>) -> tensor<f32> { %o = \"func.call\"(%x) {callee = @a} : (tensor<f32>) -> tensor<f32>\n return %o : tensor<f32> }\n}")}, true},
	"Shardy and @Sharding":            {sharded(`stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{devices=[2]<=[2]}"}`), true},
	"Shardy and @Sharding, generic":   {sharded(`"stablehlo.custom_call"(%x) {call_target_name = "Sharding", mhlo.sharding = "{devices=[2]<=[2]}"}`), true},
	"Shardy and full to shard":        {sharded(`stablehlo.custom_call @SPMDFullToShardShape(%x) {mhlo.sharding = "{manual}"}`), true},
	"Shardy and shard to full":        {sharded(`stablehlo.custom_call @SPMDShardToFullShape(%x) {mhlo.sharding = "{devices=[2]<=[2]}"}`), true},
	"a replica group out of range":    {allReduce("[[0, 7]]", "1x2"), false},
	"a replica group with a double":   {allReduce("[[0, 0]]", "1x2"), false},
	"a replica group too small":       {allReduce("[[0]]", "1x1"), false},
	"a replica group below zero":      {allReduce("[[0, -1]]", "1x2"), false},
	"partition_id while partitioning": {function("", "tensor<ui32>", "%o = stablehlo.partition_id : tensor<ui32>\n return %o : tensor<ui32>"), false},
}

func allReduce(groups, shape string) pjrt.Program {
	return function("%x: tensor<4xf32>", "tensor<4xf32>", `%o = "stablehlo.all_reduce"(%x) ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
 %s = stablehlo.add %a, %b : tensor<f32>
 stablehlo.return %s : tensor<f32> }) {replica_groups = dense<`+groups+`> : tensor<`+shape+`xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids} : (tensor<4xf32>) -> tensor<4xf32>
 return %o : tensor<4xf32>`)
}

func TestHostileProgramsAreErrors(t *testing.T) {
	leaktest.Check(t)
	require.GreaterOrEqual(t, len(hostile), 30)
	c := cpu(t, 2)
	for name, h := range hostile {
		t.Run(name, func(t *testing.T) {
			x, err := c.Compile(background, h.p, spmd(2))
			if err == nil {
				x.Close()
			}
			var ce *pjrt.CompileError
			var pe *pjrt.Error
			if h.ours {
				require.ErrorAs(t, err, &ce)
				return
			}
			require.ErrorAs(t, err, &pe)
			assert.NotContains(t, pe.Msg, "\n", "a summary is one line")
			assert.Equal(t, "compile", pe.Op)
		})
	}
}

func TestATupleParameterIsRefused(t *testing.T) {
	leaktest.Check(t)
	_, err := cpu(t, 1).Compile(background, function("%x: tuple<tensor<4xf32>>", "tensor<4xf32>",
		"%o = stablehlo.get_tuple_element %x[0] : (tuple<tensor<4xf32>>) -> tensor<4xf32>\n return %o : tensor<4xf32>"), pjrt.CompileOptions{})
	var ce *pjrt.CompileError
	require.ErrorAs(t, err, &ce)
}

func TestProgramsThatOnlyLookHostileCompile(t *testing.T) {
	c := cpu(t, 2)
	for name, p := range map[string]pjrt.Program{
		"@Sharding in a comment":             {Code: append([]byte("// custom_call @Sharding\n"), addOne(2).Code...)},
		"@Sharding in a location":            {Code: []byte(strings.Replace(string(addOne(2).Code), "tensor<2x8xf32>\n    return", "tensor<2x8xf32> loc(\"stablehlo.custom_call @Sharding\")\n    return", 1))},
		"brackets in a string":               {Code: []byte(strings.Replace(string(addOne(2).Code), "module @add_one", "module @add_one attributes {mhlo.a = \""+strings.Repeat("[", 1000)+"\"}", 1))},
		"a function called twice":            {Code: []byte("module {\nfunc.func public @main(%x: tensor<f32>) -> tensor<f32> { %a = call @f(%x) : (tensor<f32>) -> tensor<f32>\n %o = call @f(%a) : (tensor<f32>) -> tensor<f32>\n return %o : tensor<f32> }\nfunc.func private @f(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }\n}")},
		"@Sharding alone":                    function("%x: tensor<4xf32>", "tensor<4xf32>", "%o = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = \"{devices=[2]<=[2]}\"} : (tensor<4xf32>) -> tensor<4xf32>\n return %o : tensor<4xf32>"),
		"two hundred brackets":               {Code: []byte(strings.Replace(string(addOne(2).Code), "module @add_one", "module @add_one attributes {mhlo.a = "+strings.Repeat("[", 200)+strings.Repeat("]", 200)+"}", 1))},
		"a value named like the sdy dialect": {Code: []byte(strings.ReplaceAll(string(function("%sdy: tensor<4xf32>", "tensor<4xf32>", "%o = stablehlo.custom_call @Sharding(%sdy) {mhlo.sharding = \"{devices=[2]<=[2]}\"} : (tensor<4xf32>) -> tensor<4xf32>\n return %o : tensor<4xf32>").Code), "%sdy", "%sdy"))},
	} {
		t.Run(name, func(t *testing.T) {
			o := spmd(2)
			o.Shardy = !strings.Contains(name, "alone") && !strings.Contains(name, "named")
			compile(t, c, p, o)
		})
	}
}

func TestCompileOptionsAreCheckedBeforeThePlugin(t *testing.T) {
	leaktest.Check(t)
	c := cpu(t, 4)
	for name, tc := range map[string]struct {
		o     pjrt.CompileOptions
		field string
	}{
		"more replicas than devices":   {pjrt.CompileOptions{Replicas: 5}, "Replicas"},
		"more partitions than devices": {pjrt.CompileOptions{Partitions: 5, SPMD: true}, "Replicas"},
		"the product too large":        {pjrt.CompileOptions{Replicas: 2, Partitions: 3, SPMD: true}, "Replicas"},
		"an overflowing product":       {pjrt.CompileOptions{Replicas: 1 << 40, Partitions: 1 << 40}, "Replicas"},
		"replicas below zero":          {pjrt.CompileOptions{Replicas: -1}, "Replicas"},
		"partitions below zero":        {pjrt.CompileOptions{Partitions: -1}, "Partitions"},
		"an unknown device":            {pjrt.CompileOptions{DeviceAssignment: [][]int{{4}}}, "DeviceAssignment"},
		"a device below zero":          {pjrt.CompileOptions{DeviceAssignment: [][]int{{-1}}}, "DeviceAssignment"},
		"a device twice":               {pjrt.CompileOptions{Replicas: 2, DeviceAssignment: [][]int{{1}, {1}}}, "DeviceAssignment"},
		"an assignment too short":      {pjrt.CompileOptions{Replicas: 2, DeviceAssignment: [][]int{{1}}}, "DeviceAssignment"},
		"an assignment too wide":       {pjrt.CompileOptions{DeviceAssignment: [][]int{{0, 1}}}, "DeviceAssignment"},
		"a ragged assignment":          {pjrt.CompileOptions{Replicas: 2, Partitions: 2, DeviceAssignment: [][]int{{0, 1}, {2}}}, "DeviceAssignment"},
		"an empty assignment":          {pjrt.CompileOptions{DeviceAssignment: [][]int{}}, "DeviceAssignment"},
		"a float32 override":           {pjrt.CompileOptions{Overrides: map[string]any{"x": float32(1)}}, "Overrides"},
		"a nil override":               {pjrt.CompileOptions{Overrides: map[string]any{"x": nil}}, "Overrides"},
		"an override without name":     {pjrt.CompileOptions{Overrides: map[string]any{"": 1}}, "Overrides"},
		"a split count below zero":     {pjrt.CompileOptions{Overrides: map[string]any{"xla_cpu_parallel_codegen_split_count": -1}}, "Overrides"},
		"the dump directory twice":     {pjrt.CompileOptions{DumpDir: "/d", Overrides: map[string]any{"xla_dump_to": "/e"}}, "Overrides"},
		"a NUL in the dump directory":  {pjrt.CompileOptions{DumpDir: "/d\x00"}, "DumpDir"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Compile(background, two(), tc.o)
			var ce *pjrt.CompileError
			require.ErrorAs(t, err, &ce)
			assert.Equal(t, tc.field, ce.Field, "%v", err)
		})
	}
	for name, o := range map[string]map[string]any{"an unknown override": {"no_such_option": true}, "an override of a wrong type": {"xla_backend_optimization_level": "x"}} {
		_, err := c.Compile(background, two(), pjrt.CompileOptions{Overrides: o})
		require.ErrorIs(t, err, pjrt.InvalidArgument, name)
	}
}

func TestReplicasRunOnTheirAssignedDevices(t *testing.T) {
	leaktest.Check(t)
	c := cpu(t, 4)
	x := compile(t, c, function("", "tensor<ui32>", "%o = stablehlo.replica_id : tensor<ui32>\n return %o : tensor<ui32>"),
		pjrt.CompileOptions{Replicas: 3, DeviceAssignment: [][]int{{2}, {0}, {3}}})
	r := rows(3, 1)
	require.NoError(t, x.Execute(background, rows(3, 0), r, pjrt.ExecuteOptions{LaunchID: 7}))
	defer closeAll(r)
	for d, dev := range x.AddressableDevices() {
		id := get[uint32](t, r[d][0], 1)[0]
		assert.Equal(t, []int{2, 0, 3}[id], dev.ID())
		assert.Same(t, dev, r[d][0].Device())
	}
}

func TestTheDeviceAssignmentComesBack(t *testing.T) {
	leaktest.Check(t)
	c := cpu(t, 4)
	for _, want := range [][][]int{{{3}}, {{1, 0}, {3, 2}}, {{2}, {1}, {0}}, {{3, 1, 2, 0}}} {
		x := compile(t, c, two(), pjrt.CompileOptions{Replicas: len(want), Partitions: len(want[0]), SPMD: len(want[0]) > 1, DeviceAssignment: want})
		got, err := x.DeviceAssignment()
		require.NoError(t, err)
		assert.Equal(t, want, got)
		require.NoError(t, x.Close())
		_, err = x.DeviceAssignment()
		require.ErrorIs(t, err, pjrt.ErrClosed)
	}
}

func TestLoadingAnExecutableNeedsALaterPlugin(t *testing.T) {
	leaktest.Check(t)
	c := cpu(t, 2)
	x := compile(t, c, addOne(2), spmd(2))
	_, err := c.LoadExecutable(background, x.Executable(), spmd(2))
	require.ErrorIs(t, err, errors.ErrUnsupported)
	var pe *pjrt.Error
	require.ErrorAs(t, err, &pe)
	assert.Equal(t, 95, pe.NeedsMinor)
	require.NoError(t, x.Close())
	_, err = c.LoadExecutable(background, x.Executable(), spmd(2))
	require.ErrorIs(t, err, pjrt.ErrClosed)
	var ce *pjrt.CompileError
	_, err = c.LoadExecutable(background, nil, spmd(2))
	require.ErrorAs(t, err, &ce)
}

func TestCompileCanBeLeft(t *testing.T) {
	leaktest.Check(t)
	c := cpu(t, 1)
	// A program that takes a while to compile.
	var body strings.Builder
	for i := range 400 {
		fmt.Fprintf(&body, "%%v%d = stablehlo.dot_general %%x, %%x, contracting_dims = [1] x [0] : (tensor<%[2]dx%[2]dxf32>, tensor<%[2]dx%[2]dxf32>) -> tensor<%[2]dx%[2]dxf32>\n%%t%[1]d = stablehlo.tanh %%v%[1]d : tensor<%[2]dx%[2]dxf32>\n", i, 33)
	}
	body.WriteString("return %t399 : tensor<33x33xf32>")
	p := function("%x: tensor<33x33xf32>", "tensor<33x33xf32>", body.String())
	ctx, cancel := context.WithCancel(background)
	cancel()
	_, err := c.Compile(ctx, p, pjrt.CompileOptions{})
	require.ErrorIs(t, err, context.Canceled)
	ctx, cancel = context.WithTimeout(background, time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err = c.Compile(ctx, p, pjrt.CompileOptions{})
	if err == nil {
		t.Skipf("compiled within a millisecond (%v)", time.Since(start))
	}
	require.ErrorIs(t, err, context.DeadlineExceeded)
	// The client waits for the compiler and drops what it made.
	require.NoError(t, c.Close())
}

func TestEncodedOptionsAreTheseBytes(t *testing.T) {
	for name, tc := range map[string]struct {
		o    pjrt.CompileOptions
		want string
	}{
		// 3: build options {1: -1, 4: replicas, 5: partitions}
		"zero value": {pjrt.CompileOptions{}, "1a0f" + "08ffffffffffffffffff01" + "2001" + "2801"},
		// ... 6: spmd, 9: {1: 2, 2: 2, 3: {1: [0 2]}, 3: {1: [1 3]}}, 19: shardy
		"two by two": {pjrt.CompileOptions{Replicas: 2, Partitions: 2, SPMD: true, Shardy: true, DeviceAssignment: [][]int{{0, 1}, {2, 3}}},
			"1a26" + "08ffffffffffffffffff01" + "2002" + "2802" + "3001" + "4a10" + "0802" + "1002" + "1a040a020002" + "1a040a020103" + "980101"},
		// 7: {1: name, 2: {1 string, 2 bool, 3 int, 4 double}}, by name
		"overrides": {pjrt.CompileOptions{DumpDir: "/d", Overrides: map[string]any{"a": true, "b": 2, "c": 1.0}},
			"1a0f" + "08ffffffffffffffffff01" + "2001" + "2801" + "3a07" + "0a0161" + "12021001" + "3a07" + "0a0162" + "12021802" +
				"3a0e" + "0a0163" + "120921000000000000f03f" + "3a13" + "0a0b" + hex.EncodeToString([]byte("xla_dump_to")) + "1204" + "0a022f64"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := pjrt.EncodeOptions(tc.o, 4)
			require.NoError(t, err)
			assert.Equal(t, tc.want, hex.EncodeToString(got))
		})
	}
}

func TestMaximaKeepNaNUnlessAskedToBeFast(t *testing.T) {
	leaktest.Check(t)
	c := cpu(t, 1)
	nan := float32(math.NaN())
	p := function("%x: tensor<2xf32>, %y: tensor<2xf32>", "tensor<2xf32>", "%o = stablehlo.maximum %x, %y : tensor<2xf32>\n return %o : tensor<2xf32>")
	for name, tc := range map[string]struct {
		overrides map[string]any
		want      bool
	}{
		"no overrides":      {nil, true},
		"another override":  {map[string]any{"xla_embed_ir_in_executable": false}, true},
		"asked to be fast":  {map[string]any{"xla_cpu_enable_fast_min_max": true}, false},
		"asked to be exact": {map[string]any{"xla_cpu_enable_fast_min_max": false}, true},
	} {
		t.Run(name, func(t *testing.T) {
			given := maps.Clone(tc.overrides)
			x := compile(t, c, p, pjrt.CompileOptions{Overrides: tc.overrides})
			defer x.Close()
			assert.Equal(t, given, tc.overrides, "the caller's map")
			l, r := put(t, c, []float32{nan, 1}, pjrt.F32, []int{2}, c.Devices()[0]), put(t, c, []float32{1, nan}, pjrt.F32, []int{2}, c.Devices()[0])
			defer l.Close()
			defer r.Close()
			out := rows(1, 1)
			require.NoError(t, x.Execute(background, [][]*pjrt.Buffer{{l, r}}, out, pjrt.ExecuteOptions{}))
			defer closeAll(out)
			got := get[float32](t, out[0][0], 2)
			assert.Equal(t, tc.want, got[0] != got[0] && got[1] != got[1], "%v", got)
		})
	}
}
