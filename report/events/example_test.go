package events_test

import (
	"context"
	"fmt"
	"os"

	"github.com/tpustrategy/tpustrategy/report/events"
)

// Write the measurements of a run for `tensorboard --logdir` and read them in a program.
func Example() {
	dir, err := os.MkdirTemp("", "events-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	w, err := events.Create(dir, events.Options{})
	if err != nil {
		panic(err)
	}
	if err := w.Write(events.Event{Step: 100, Values: []events.Value{events.Scalar("loss", 0.5)}}); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	for e, err := range events.Read(context.Background(), w.Path()) {
		if err != nil {
			panic(err)
		}
		for _, v := range e.Values {
			fmt.Println(e.Step, v.Tag, v.Scalar)
		}
	}
	// Output: 100 loss 0.5
}
