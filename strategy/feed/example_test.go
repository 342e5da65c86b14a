package feed_test

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
)

// A dataset of global batches is split over the replicas. The last batch is partial.
func ExampleIterate() {
	ctx := context.Background()
	strat, done := strategytest.Example(2, 1)
	defer done()

	distributed := strategytest.OK(input.Distribute(input.Range(10).Batch(4, false),
		strategytest.OK(feed.InputOptions(strat))))
	iterator := strategytest.OK(feed.Iterate(ctx, strat, distributed))
	defer iterator.Close()
	for {
		x, err := iterator.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		fmt.Println(strategytest.Locals(strat, strategytest.OK(x, err)))
	}
	// Output:
	// [[0 1] [2 3]]
	// [[4 5] [6 7]]
	// [[8] [9]]
}

// A function returns the dataset of a host, in batches for one replica.
func ExampleIterate_fromFunction() {
	ctx := context.Background()
	strat, done := strategytest.Example(2, 1)
	defer done()

	distributed := strategytest.OK(input.FromFunction(func(c input.Context) (input.Dataset, error) {
		size, err := c.PerReplicaBatchSize(8)
		return input.Range(16).Batch(size, true).Shard(c.NumInputPipelines, c.InputPipelineID), err
	}, strategytest.OK(feed.InputOptions(strat))))
	iterator := strategytest.OK(feed.Iterate(ctx, strat, distributed))
	defer iterator.Close()
	fmt.Println(distributed.Spec())
	fmt.Println(strategytest.Locals(strat, strategytest.OK(iterator.Next(ctx))))
	// Output:
	// int64[4]
	// [[0 1 2 3] [4 5 6 7]]
}
