package watchdog_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tpustrategy/tpustrategy/fit/watchdog"
)

// A custom loop whose input of step 41 never arrives.
func Example() {
	ctx := context.Background()
	w, err := watchdog.Start(ctx, watchdog.Options{
		Name:        "w-0",
		MinTimeout:  50 * time.Millisecond, // the default is 5 seconds
		CancelDelay: 50 * time.Millisecond, // the default is a minute
		OnReport: func(r watchdog.Report) {
			f := r.Findings[0]
			fmt.Printf("host %d (%s) after step %d: %s\n", f.Host, f.Name, r.Step, f.Cause)
		},
	})
	if err != nil {
		panic(err)
	}
	defer w.Close(nil)
	ctx, stop := w.Context(ctx)
	defer stop()

	next := func(step int) error { // the next batch
		if step == 40 {
			<-ctx.Done()
		}
		return context.Cause(ctx)
	}
	for step := 0; err == nil; step++ {
		w.SetActivity(watchdog.Input, "")
		if err = next(step); err != nil {
			break
		}
		w.SetActivity(watchdog.Launch, "")
		w.CompleteStep()
	}
	stuck := err.(*watchdog.StuckError)
	fmt.Println("exit code", stuck.ExitCode(), "in", stuck.Activity)
	// Output:
	// host 0 (w-0) after step 40: input
	// exit code 69 in input
}
