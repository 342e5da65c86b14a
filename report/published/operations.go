package published

import (
	"fmt"
	"strings"
)

// Operation is a single operation whose time on TPUs was published. It is compiled with the flags
// of the published recipe, as far as libtpu supports them for the chip. Sources:
// AI-Hypercomputer/tpu-recipes, microbenchmarks/README.md, ironwood/README.md, ironwood/hbm,
// ironwood/collectives and trillium/collectives.
type Operation struct {
	// Row is the number in the project's list of published measurements.
	Row         int
	Name, Slice string
	// Text is the program as StableHLO for Devices devices of one slice. Options are the compiler
	// options.
	Text    string
	Devices int
	Options map[string]any
	// Seconds is the published time.
	Seconds float64
	// Bound is the maximum relative error of a prediction. Why explains a large bound.
	Bound float64
	Why   string
	// Fitted is set if a constant of the prediction is fitted to this measurement, so that its
	// error is no evidence.
	Fitted bool
}

// bounded sets the largest accepted relative error of a prediction. It is large for measurements of
// a few microseconds, which are dominated by the launch that a prediction does not include.
func bounded(m Operation) Operation {
	switch {
	case m.Bound > 0:
	case m.Seconds < 20e-6:
		m.Bound, m.Why = 1, "microseconds: the launch counts"
	case m.Seconds < 1e-3:
		m.Bound = 0.15
	default:
		m.Bound = 0.10
	}
	return m
}

// Operations returns all operations with a published time.
func Operations() (all []Operation) {
	add := func(m Operation) { all = append(all, bounded(m)) }
	vmem := map[string]any{"xla_tpu_scoped_vmem_limit_kib": 65536}
	add(Operation{Row: 34, Name: "matmul 8192", Slice: "v6e:1x1", Devices: 1, Text: matmul(8192), Seconds: 1.328756e-3,
		Options: vmem, Fitted: true})
	add(Operation{Row: 34, Name: "copy 32 MiB", Slice: "v6e:1x1", Devices: 1, Text: copied(32 << 20), Seconds: 49.3594e-6,
		Fitted: true})
	gemm := map[string]any{
		"xla_tpu_overlap_compute_collective_tc": true, "xla_enable_async_all_gather": true,
		"xla_enable_async_collective_permute":                true,
		"xla_tpu_enable_all_experimental_scheduler_features": true, "xla_tpu_accumulate_into_mrb": true,
		"xla_tpu_scoped_vmem_limit_kib": 65536,
		"xla_tpu_vmem_scavenging_mode":  "NONE", "xla_tpu_dvfs_p_state": 7,
	}
	for _, x := range []struct {
		n      int
		tflops float64
	}{{128, 2.589961271}, {256, 18.28645367}, {512, 105.0783466}, {1024, 349.7270639}, {2048, 679.284728},
		{4096, 892.9445127}, {16384, 950.1286983}, {32768, 956.3824592}} {
		n := float64(x.n)
		add(Operation{Row: 35, Name: fmt.Sprintf("gemm %d", x.n), Slice: "tpu7x:1x1x1", Devices: 1, Text: matmul(x.n),
			Seconds: 2 * n * n * n / (x.tflops * 1e12), Options: gemm, Fitted: x.n >= 16384})
	}
	bandwidth := map[string]any{"xla_tpu_scoped_vmem_limit_kib": 65536, "xla_jf_bounds_check": false,
		"xla_tpu_dvfs_p_state": 7}
	for k, gbs := range []float64{1379.335021, 2249.746091, 2246.129937, 2757.308985, 3009.83593, 3097.217778, 3176.50274,
		3167.144485, 3199.020504, 3198.414211,
		3203.486119, 3197.879607, 3210.480912} {
		bytes := 2 << 20 << k
		add(Operation{Row: 35, Name: "copy " + size(bytes), Slice: "tpu7x:1x1x1", Devices: 1, Text: copied(bytes),
			Seconds: 2 * float64(bytes) / (gbs * 1e9), Options: bandwidth, Fitted: bytes >= 2<<30})
	}
	gather := map[string]any{
		"xla_sc_disable_megacore_partitioning": true, "xla_tpu_disable_sparse_core_collective_offload_remover": true,
		"xla_tpu_enable_all_gather_offload_tracing":                   true,
		"xla_tpu_enable_sparse_core_collective_offload_2d_all_gather": true,
		"xla_tpu_enable_sparse_core_collective_offload_3d_all_gather": true,
		"xla_tpu_enable_sparse_core_collective_offload_all_gather":    true,
		"xla_tpu_use_single_sparse_core_for_all_gather_offload":       true,
		"xla_tpu_use_tc_device_shape_on_sc":                           true, "xla_tpu_dvfs_p_state": 7,
		"xla_tpu_scoped_vmem_limit_kib": 65536,
	}
	for _, x := range []struct {
		slice   string
		devices int
		gbs     [5]float64
	}{
		{"tpu7x:2x2x1", 8, [5]float64{71.7703034, 129.1869148, 161.9040742, 174.765465, 178.7714158}},
		{"tpu7x:2x2x2", 16, [5]float64{69.53210305, 127.3945462, 162.0864029, 174.6652133, 178.7592252}},
	} {
		for k, gbs := range x.gbs {
			rows := 64 << (2 * k)
			// The recipe counts three transfers for each of a chip's two cores.
			bytes := float64(rows*8*128*4) * 3 * 2
			add(Operation{Row: 36, Name: fmt.Sprintf("all-gather %d", rows*8*128), Slice: x.slice, Devices: x.devices,
				Text: allGather(rows, x.devices), Seconds: bytes / (gbs * 1e9), Options: gather, Fitted: true})
		}
	}
	square := 17408.0 * 17408 * 2
	add(Operation{Row: 37, Name: "all-reduce 606 MB", Slice: "v6e:16x16", Devices: 256, Text: allReduce(17408,
		[][]int{numbers(0, 256)}), Seconds: square * 2 * 255 / 256 / 235.7595e9, Fitted: true})
	var across [][]int
	for k := range 256 {
		across = append(across, []int{k, 256 + k})
	}
	add(Operation{Row: 37, Name: "all-reduce 606 MB", Slice: "2x v6e:16x16", Devices: 256, Text: allReduce(17408/2,
		across), Seconds: square * 2 / 4 / 4.1130934e9,
		Bound: 0.75, Why: "no figure is fitted to it: the published rate of the network is three times what it gave"})
	return all
}

func matmul(n int) string {
	return fmt.Sprintf(
		`module @matmul { func.func @main(%%a: tensor<%[1]dx%[1]dxbf16>, %%b: tensor<%[1]dx%[1]dxbf16>) -> tensor<%[1]dx%[1]dxbf16> {
  %%c = stablehlo.dot_general %%a, %%b, contracting_dims = [1] x [0] : (tensor<%[1]dx%[1]dxbf16>, tensor<%[1]dx%[1]dxbf16>) -> tensor<%[1]dx%[1]dxf32>
  %%d = stablehlo.convert %%c : (tensor<%[1]dx%[1]dxf32>) -> tensor<%[1]dx%[1]dxbf16>
  return %%d : tensor<%[1]dx%[1]dxbf16>
} }`, n)
}

func copied(bytes int) string {
	return fmt.Sprintf(
		"module @copy { func.func @main(%%a: tensor<%[1]dxbf16>) -> tensor<%[1]dxbf16> { return %%a : tensor<%[1]dxbf16> } }",
		bytes/2)
}

// allGather returns a program with an all-gather in groups of four chips. The first cores of the
// four chips form one group, and the second cores another one.
func allGather(rows, devices int) string {
	var groups [][]int
	for first := 0; first < devices; first += 8 {
		groups = append(groups, []int{first, first + 2, first + 4, first + 6}, []int{first + 1, first + 3, first + 5,
			first + 7})
	}
	in, out := fmt.Sprintf("tensor<%dx8x128xf32>", rows), fmt.Sprintf("tensor<%dx8x128xf32>", 4*rows)
	return everywhere(devices, in, out, "[{}, {}, {}]",
		fmt.Sprintf(`"stablehlo.all_gather"(%%b) {all_gather_dim = 0 : i64, %s`, attributes(groups)))
}

func allReduce(rows int, groups [][]int) string {
	shape := fmt.Sprintf("tensor<%dx17408xbf16>", rows)
	return everywhere(len(groups)*len(groups[0]), shape, shape, "[{}, {}]", `"stablehlo.all_reduce"(%b) ({
    ^sum(%u: tensor<bf16>, %v: tensor<bf16>):
      %q = stablehlo.add %u, %v : tensor<bf16>
      stablehlo.return %q : tensor<bf16>
  }) {`+attributes(groups))
}

func attributes(groups [][]int) string {
	text := strings.ReplaceAll(fmt.Sprint(groups), " ", ",")
	return fmt.Sprintf("replica_groups = dense<%s> : tensor<%dx%dxi64>, channel_handle = "+
		"#stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}",
		text, len(groups), len(groups[0]))
}

// everywhere returns a program that runs an operation on every device. All devices have the same
// operand.
func everywhere(devices int, in, out, spec, operation string) string {
	return fmt.Sprintf(`module @all attributes {mhlo.num_replicas = 1 : i32, mhlo.num_partitions = %[1]d : i32} {
  sdy.mesh @mesh = <["x"=%[1]d]>
  func.func @main(%%a: %[2]s) -> %[3]s {
    %%o = sdy.manual_computation(%%a) in_shardings=[<@mesh, %[4]s>] out_shardings=[<@mesh, %[4]s>] manual_axes={"x"} (%%b: %[2]s) {
      %%g = %[5]s : (%[2]s) -> %[3]s
      sdy.return %%g : %[3]s
    } : (%[2]s) -> %[3]s
    return %%o : %[3]s
  }
}`, devices, in, out, spec, operation)
}

func numbers(from, to int) (list []int) {
	for k := from; k < to; k++ {
		list = append(list, k)
	}
	return list
}

func size(bytes int) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%d GiB", bytes>>30)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}
