package simhost_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// This example runs a collective over two processes with four devices each.
func Example() {
	ctx := context.Background()
	base, err := system.Open(ctx, system.Options{CPUDevices: 8})
	if err != nil {
		log.Fatal(err)
	}
	defer base.Close()
	cluster, err := simhost.New(base, simhost.Options{Processes: 2})
	if err != nil {
		log.Fatal(err)
	}
	lines := make([]string, 2)
	host := func(i int) error {
		sys, err := cluster.Open(ctx, i)
		if err != nil {
			return err
		}
		defer sys.Close()
		strat, err := strategy.New(sys, strategy.Options{Replicas: 4, LogicalDevices: 2})
		if err != nil {
			return err
		}
		defer strat.Close()
		names, err := strat.GatherBytes(ctx, "names", fmt.Appendf(nil, "host-%d", i))
		lines[i] = fmt.Sprintf("process %d feeds replicas %v and heard from %s", i, strat.LocalReplicas(), names)
		return err
	}
	var wg sync.WaitGroup
	for i := range lines {
		wg.Go(func() {
			if err := host(i); err != nil {
				log.Print(err)
			}
		})
	}
	wg.Wait()
	for _, line := range lines {
		fmt.Println(line)
	}
	// Output:
	// process 0 feeds replicas [0 1] and heard from [host-0 host-1]
	// process 1 feeds replicas [2 3] and heard from [host-0 host-1]
}
