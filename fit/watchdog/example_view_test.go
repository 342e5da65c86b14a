package watchdog_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/tpustrategy/tpustrategy/fit/watchdog"
)

// Three hosts have written one record each. Host 1 waits for its input, and the others wait for
// host 1.
func ExampleMonitor() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "run-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	records, err := watchdog.OpenRecordStore(ctx, dir)
	if err != nil {
		panic(err)
	}
	defer records.Close()
	for host := range 3 {
		r := watchdog.Record{Version: watchdog.Version, Run: "a", Host: host, Hosts: 3, State: watchdog.Running, Step: 400,
			Steps:    1000,
			Activity: "launch", Duration: 6, Timeout: 30, ActivityIndex: 2, Sequence: 1, Time: time.Now()}
		if host == 1 {
			r.Activity, r.Duration, r.Timeout, r.ActivityIndex = "input", 6.1, 5, 1
		}
		if err := records.Put(ctx, &r); err != nil {
			panic(err)
		}
	}

	var view watchdog.Monitor
	status, err := view.Status(ctx, records)
	if err != nil {
		panic(err)
	}
	fmt.Println(status.Summary)
	for _, f := range status.Findings {
		fmt.Println(f)
	}
	// Output:
	// step 400 of 1000, 0 steps/s, 3 of 3 hosts
	// host 1: in the wait for its input for 6.1 s, after step 400; 2 hosts wait, in the launch after step 400
}
