package v1_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"

	v1 "github.com/tpustrategy/tpustrategy/compat/v1"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// A loop of TensorFlow 1: an iterator, a run for each of its elements, a reduction.
func Example() {
	ctx := context.Background()
	sys, err := system.Open(ctx, system.Options{CPUDevices: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()
	strat, err := strategy.New(sys, strategy.Options{Replicas: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer strat.Close()
	s := v1.New(strat, v1.Options{})

	it, err := s.MakeDatasetIterator(ctx, input.Range(8).Batch(4, true))
	if err != nil {
		log.Fatal(err)
	}
	defer it.Close()
	square := func(rc *eager.ReplicaContext, args ...any) (any, error) { return rc.Mul(args[0], args[0]) }
	for {
		squares, err := s.ExperimentalRun(ctx, square, it)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		sum, err := s.Reduce(ctx, strategy.Sum, squares, 0)
		if err != nil {
			log.Fatal(err)
		}
		total, err := sum.(*strategy.Mirrored).Value(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(total.Value())
	}
	// Output:
	// 14
	// 126
}
