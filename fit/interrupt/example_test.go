package interrupt_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tpustrategy/tpustrategy/fit/interrupt"
)

// A custom scheduler sends its notices through a Go channel.
func ExampleNotify() {
	notices := make(chan interrupt.Notice, 1)
	ctx, stop := interrupt.Notify(context.Background(), interrupt.Options{Signals: []os.Signal{}, Notices: notices})
	defer stop()
	notices <- interrupt.Notice{Reason: "the quota of the day is used up"}

	<-ctx.Done() // fit.Run waits in the same way
	_, known := interrupt.TimeLeft(ctx)
	fmt.Println(interrupt.FromContext(ctx), known)
	// Output: interrupt: the quota of the day is used up true
}

// The exit code of a program is the exit code of its error.
func ExampleExitCodeFor() {
	saved := &interrupt.Error{Step: 1200, Notice: &interrupt.Notice{Reason: "SIGTERM"}}
	fmt.Println(saved)
	fmt.Println(interrupt.ExitCodeFor(nil), interrupt.ExitCodeFor(saved),
		interrupt.ExitCodeFor(errors.New("the loss is NaN")))
	// Output:
	// interrupt: stopped after step 1200: SIGTERM; restart the process to resume
	// 0 75 1
}
