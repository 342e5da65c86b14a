package report_test

import (
	"fmt"
	"os"

	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/report"
)

// Show a report that was stored as JSON.
func ExampleParse() {
	r, err := report.Parse([]byte(`{
		"version": 2, "step": "train_step", "target": {"name": "v5e:2x4", "kind": "TPU v5 lite", "devices": 8, "hosts": 1, "hbm_bytes": 17179869184},
		"replicas": 4, "logical_devices": 2,
		"memory": {"arguments": 3221225472, "outputs": 3221225472, "aliased": 3221225472, "temporaries": 1073741824, "total": 4294967296, "needs": 4294967296,
			"limit": 17179869184, "verdict": "fits"},
		"tensors": [], "cost": {"flops_per_core": 1e9, "bytes_accessed_per_core": 2147483648, "roofline_seconds": 0.002},
		"collectives": [{"kind": "all-reduce", "axis": "replica", "group_size": 4, "count": 1, "bytes": 1048576, "moved_bytes": 1572864}]
	}`))
	if err != nil {
		panic(err)
	}
	if err := r.WriteText(os.Stdout); err != nil {
		panic(err)
	}
	bytes, _ := r.CollectiveBytes("replica")
	fmt.Println("gradients:", units.Bytes(bytes))
	// Output:
	// train_step on v5e:2x4 (8 x TPU v5 lite, hosts: 1): 4 replicas of 2 logical devices
	//
	// memory of one core
	//   arguments        3.00 GiB
	//   outputs               0 B
	//   aliased          3.00 GiB
	//   temporaries      1.00 GiB
	//   code                  0 B
	//   total            4.00 GiB
	//   [aaaaaaaaattt......................................] of 16.00 GiB
	//   verdict: fits: 4.00 GiB, 25.0% of the memory of a core
	//
	// collectives of one core in one step
	//   kind        axis     cores  count  operands  sent, at least
	//   all-reduce  replica  4      1      1.00 MiB  1.50 MiB
	//
	// estimated cost
	//   operations of one core  1.00 GFLOP
	//   bytes accessed          2.00 GiB
	//   roofline                2.00 ms, operations in sequence at the published peak and memory bandwidth
	// gradients: 1.00 MiB
}
