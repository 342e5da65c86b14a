package prochost_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"

	"github.com/tpustrategy/tpustrategy/internal/test/prochost"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// This example connects two hosts to a machine with eight devices. The hosts are goroutines. A real
// supervisor starts a process for each host, with the environment variable that Environ returns.
func Example() {
	ctx := context.Background()
	base, err := system.Open(ctx, system.Options{CPUDevices: 8})
	if err != nil {
		log.Fatal(err)
	}
	defer base.Close()
	dir, err := os.MkdirTemp("", "machine")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	machine, err := prochost.Listen(base, "unix", filepath.Join(dir, "socket"), prochost.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer machine.Close()

	lines := make([]string, 2)
	host := func(h prochost.Host) error {
		sys, err := system.Open(ctx, system.Options{Connect: h.Connect()})
		if err != nil {
			return err
		}
		defer sys.Close()
		strat, err := strategy.New(sys, strategy.Options{Replicas: 4, LogicalDevices: 2})
		if err != nil {
			return err
		}
		defer strat.Close()
		names, err := strat.GatherBytes(ctx, "names", fmt.Appendf(nil, "host-%d", h.Process))
		lines[h.Process] = fmt.Sprintf("host %d feeds replicas %v and heard from %s", h.Process, strat.LocalReplicas(), names)
		return err
	}
	var hosts sync.WaitGroup
	for i := range lines {
		hosts.Go(func() {
			if err := host(machine.Host("first", i, 2)); err != nil {
				log.Print(err)
			}
		})
	}
	hosts.Wait()
	for _, line := range lines {
		fmt.Println(line)
	}
	// Output:
	// host 0 feeds replicas [0 1] and heard from [host-0 host-1]
	// host 1 feeds replicas [2 3] and heard from [host-0 host-1]
}
