//go:build unix

package kills

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/prochost"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// The run has four passes over eighty examples in batches of eight. The examples are numbered from
// 1.
const (
	examples  = 80
	rows      = 8
	passes    = 4
	steps     = passes * examples / rows
	saveEvery = 3
	keep      = 3
)

// job contains the options that the supervisor passes to the host processes.
type job struct {
	Directory         string
	Replicas, Logical int
	// Dataset trains on a dataset that is sharded over the hosts. Otherwise each host reads all
	// batches and uses the rows of its replicas.
	Dataset bool
	// Saving is the mode of saving checkpoints.
	Saving saving
	// Pause is the sleep time after each step.
	Pause time.Duration
	// Faults are the faults of the store, if checkpoints are saved to a store.
	Faults faults
}

// saving is a mode of saving checkpoints.
type saving string

// The modes of saving checkpoints.
const (
	inStep     saving = "while the steps wait"
	background saving = "in the background"
	toStore    saving = "to a store"
)

const jobVariable = "KILLS_TEST_JOB"

// all returns the features and the numbers of all examples.
func all() (xs, ys []float32) {
	xs, ys = make([]float32, examples*8), make([]float32, examples)
	for i := range xs {
		xs[i] = float32(i%17) / 17
	}
	for i := range ys {
		ys[i] = float32(i + 1)
	}
	return xs, ys
}

// dataset returns a dataset of one pass.
func dataset() (fit.Data, error) {
	xs, ys := all()
	x, err := input.NewTensor(xs, examples, 8)
	if err != nil {
		return fit.Data{}, err
	}
	y, err := input.NewTensor(ys, examples, 1)
	if err != nil {
		return fit.Data{}, err
	}
	return fit.Dataset(input.FromSlices(input.Tuple(input.Leaf(x), input.Leaf(y))).Shuffle(32,
		input.ShuffleOptions{Seed: 5}).Batch(rows, true)), nil
}

// batches returns the batches of all passes. Each pass has a different order.
func batches() fit.Data {
	xs, ys := all()
	return fit.Batches(func(yield func([]any, error) bool) {
		for pass := range passes {
			order := rand.New(rand.NewPCG(7, uint64(pass))).Perm(examples)
			for ; len(order) > 0; order = order[rows:] {
				x, y := tensors.FromShape(shapes.Make(dtypes.Float32, rows, 8)), tensors.FromShape(shapes.Make(dtypes.Float32, rows,
					1))
				tensors.MustMutableFlatData(x, func(flat []float32) {
					for i, k := range order[:rows] {
						copy(flat[8*i:], xs[8*k:8*k+8])
					}
				})
				tensors.MustMutableFlatData(y, func(flat []float32) {
					for i, k := range order[:rows] {
						flat[i] = ys[k]
					}
				})
				if !yield([]any{x, y}, nil) {
					return
				}
			}
		}
	})
}

// loss returns the loss of a model whose hidden layer is split over the logical devices.
func loss(logicalDevices int) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		h := graph.Tanh(logical.Split(layers.Dense(rc.Scope("hidden"), in[0], true, 16), 1, logicalDevices))
		y := logical.Replicate(layers.Dense(rc.Scope("output"), h, true, 1))
		return graph.ReduceAllMean(graph.Square(graph.Sub(y, graph.DivScalar(in[1], float64(examples)))))
	}
}

// numbers returns a metric that sums a power of the numbers of a batch's examples. The sums
// identify the examples independently of replicas and hosts.
func numbers(power int) func(*strategy.ReplicaContext, []*graph.Node) (values, weights *graph.Node) {
	return func(_ *strategy.ReplicaContext, in []*graph.Node) (values, weights *graph.Node) {
		return graph.PowScalar(graph.Reshape(in[1], -1), power), nil
	}
}

// host runs a host and returns its exit code. It reports its progress on lines of standard output.
func host(h prochost.Host) int {
	ctx, stop := interrupt.Notify(context.Background(), interrupt.Options{Grace: 20 * time.Second})
	defer stop()
	var j job
	err := json.Unmarshal([]byte(os.Getenv(jobVariable)), &j)
	if err == nil {
		err = runHost(ctx, h, j)
	}
	var interrupted *interrupt.Error
	var lost *simhost.LostError
	var missing *simhost.MissingError
	var machine *prochost.MachineError
	switch {
	case err == nil:
		fmt.Println("done")
	case errors.As(err, &interrupted):
		fmt.Println("interrupted", interrupted.Step)
	case errors.As(err, &lost):
		fmt.Println("lost", lost.Process)
	case errors.As(err, &missing):
		fmt.Println("missing", missing.Missing)
	case errors.As(err, &machine):
		fmt.Println("cut off")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "host %d: %v\n", h.Process, err)
	}
	return interrupt.ExitCodeForContext(ctx, err)
}

func runHost(ctx context.Context, h prochost.Host, j job) (err error) {
	fmt.Println("doing start") // this includes the devices, the other hosts and the first program
	starting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	sys, err := system.Open(starting, system.Options{Connect: h.Connect()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sys.Close()) }()
	fmt.Println("doing start")
	s, err := strategy.New(sys, strategy.Options{Replicas: j.Replicas, LogicalDevices: j.Logical,
		Variables: strategytest.AnnotatedRules(j.Logical)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	data, epochs := batches(), int64(1)
	if j.Dataset {
		epochs = passes
		if data, err = dataset(); err != nil {
			return err
		}
	}
	step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.05).Done(),
		loss(j.Logical), train.Options{Metrics: []train.Metric{
			{Name: "examples", Values: numbers(1), Form: train.Total}, {Name: "squares", Values: numbers(2),
				Form: train.Total}}}))
	place, options := filepath.Join(j.Directory, "checkpoints"), fit.CheckpointOptions{Keep: keep,
		Background: j.Saving == background}
	if j.Saving == toStore {
		open := func(_ context.Context, url string) (storage.Store, error) {
			below, err := storage.Directory(strings.TrimPrefix(url, harmedScheme+"://"))
			return &harmed{Store: below, faults: j.Faults, chance: rand.New(rand.NewPCG(j.Faults.Seed, uint64(h.Process)))}, err
		}
		storage.Register(harmedScheme, open)
		place = harmedScheme + "://" + place
	}
	var compile sync.Once
	_, err = fit.Run(ctx, step, data, fit.Options{
		Epochs: epochs, Every: 1, Resume: true, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	},
		fit.Watch(watchdog.Options{Dir: j.Directory, MinTimeout: 2 * time.Second, Exit: os.Exit}),
		fit.CSV(filepath.Join(j.Directory, "table.csv")),
		fit.Checkpoint(place, saveEvery, options),
		fit.Hook{Name: "tell",
			OnActivity: func(what watchdog.Activity, _ string) {
				switch what {
				case watchdog.Save, watchdog.Restore, watchdog.Exchange:
					fmt.Println("doing", what)
				case watchdog.Launch:
					compile.Do(func() { fmt.Println("doing start") })
				}
			},
			Begin: func(_ context.Context, s *fit.State) error {
				fmt.Println("resumed", s.ResumedFrom())
				return nil
			},
			Record: func(_ context.Context, s *fit.State) error {
				fmt.Println("step", s.Step())
				time.Sleep(j.Pause)
				return nil
			},
		})
	return err
}
