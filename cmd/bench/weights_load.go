package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/pretrained"
	"github.com/tpustrategy/tpustrategy/tpu/system"
	"github.com/tpustrategy/tpustrategy/weights"
)

// weightsModel is a decoder of 67 million parameters.
func weightsModel() weights.Config {
	width := max(64, int(768*effort)&^63)
	return weights.Config{Type: "llama", Layers: 6, Width: width, Heads: width / 64, KeyHeads: width / 64, HeadSize: 64, Hidden: width * 8 / 3 &^ 63, Vocabulary: 16000, Tied: false}
}

// weightsLoad is the loading of a file of Hugging Face's form in a dtype onto devices: whole on one,
// or as 4 replicas of 2 logical devices that share it out. The matrices are turned, as dense layers
// have them, or stay as they are stored. The floor is a read of the file.
func weightsLoad(dtype string, turned bool) func(ctx context.Context, devices int) (row, error) {
	return func(ctx context.Context, devices int) (row, error) {
		dir, err := os.MkdirTemp("", "bench-weights")
		if err != nil {
			return row{}, err
		}
		defer os.RemoveAll(dir)
		path, c := filepath.Join(dir, weights.SingleName), weightsModel()
		rules := weights.Llama(c, weights.Names{})
		for i := range rules {
			for k := range rules[i].To {
				if !turned {
					rules[i].To[k].Steps = nil
				}
			}
		}
		size, err := writeWeights(path, c, dtype)
		if err != nil {
			return row{}, err
		}
		sys, err := system.Open(ctx, system.Options{CPUDevices: devices})
		if err != nil {
			return row{}, err
		}
		defer sys.Close()
		var times, floors, busy, busyFloor []time.Duration // busy: of the processor
		var report *pretrained.Report
		for range max(3, rounds(7)) {
			start := used()
			floor, err := readAll(path)
			if err != nil {
				return row{}, err
			}
			busyFloor = append(busyFloor, time.Duration((used()-start)*1e9))
			floors = append(floors, floor)
			cpu := 0.0
			if report, cpu, err = loadOnce(ctx, sys, rules, path, devices); err != nil {
				return row{}, err
			}
			times, busy = append(times, report.Elapsed), append(busy, time.Duration(cpu*1e9))
		}
		us, floor := median(times), median(floors)
		return row{Us: round(us), FloorUs: round(floor), Ratio: round(us / floor), CPUUs: round(median(busy)), GBps: round(float64(size) / us / 1e3),
			Note: fmt.Sprintf("%s to float32, %.0f MB; a read of the file into memory %.2f GB/s, %.0f us of the processor; %v",
				dtype, float64(size)/1e6, float64(size)/floor/1e3, median(busyFloor), report)}, nil
	}
}

// writeWeights writes a file of random weights, and returns its size.
func writeWeights(path string, c weights.Config, dtype string) (size int64, err error) {
	entries, at, bytes := map[string]any{}, int64(0), int64(4)
	if dtype == "BF16" {
		bytes = 2
	}
	for _, t := range c.Tensors(dtype) {
		n := bytes
		for _, d := range t.Shape {
			n *= int64(d)
		}
		entries[t.Name] = map[string]any{"dtype": dtype, "shape": t.Shape, "data_offsets": []int64{at, at + n}}
		at += n
	}
	header, err := json.Marshal(entries)
	if err != nil {
		return 0, err
	}
	file, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	start := make([]byte, 8)
	for i := range start {
		start[i] = byte(len(header) >> (8 * i))
	}
	if _, err := file.Write(append(start, header...)); err != nil {
		return 0, err
	}
	block := make([]byte, 1<<20)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range block {
		block[i] = byte(rng.Uint32()) &^ 0x40 // no large exponents
	}
	for left := at; left > 0; left -= int64(len(block)) {
		if _, err := file.Write(block[:min(left, int64(len(block)))]); err != nil {
			return 0, err
		}
	}
	return int64(8+len(header)) + at, nil
}

// readAll times a plain read of a file into memory.
func readAll(path string) (time.Duration, error) {
	start := time.Now()
	data, err := os.ReadFile(path)
	runtime.KeepAlive(data)
	return time.Since(start), err
}

// loadOnce loads the file into a new store, and returns the processor time of that in seconds.
func loadOnce(ctx context.Context, sys *system.System, rules weights.Rules, path string, devices int) (report *pretrained.Report, cpu float64, err error) {
	p := min(devices, 2)
	opts := strategy.Options{Replicas: devices / p, LogicalDevices: p, State: strategy.ShardParameters}
	if p > 1 {
		opts.Variables = logical.Rules{
			logical.Match(`embedding/embeddings`, logical.SplitInto(p, 1)), logical.Match(`head/dense/weights`, logical.SplitInto(1, p)),
			logical.Match(`/(query|key|value|gate|up)/dense/weights`, logical.SplitInto(1, 1, p)), logical.Match(`/(out|down)/dense/weights`, logical.SplitInto(1, p, 1)),
		}
	}
	strat, err := strategy.New(sys, opts)
	if err != nil {
		return nil, 0, err
	}
	defer strat.Close()
	file, err := weights.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	plan, err := weights.NewPlan(file.Tensors(), nil, rules, weights.PlanOptions{Create: dtypes.Float32})
	if err != nil {
		return nil, 0, err
	}
	store := model.NewStore()
	f := strat.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		for _, v := range plan.Variables() {
			rc.Scope().Store().VariableWithShape(v.Path, shapes.Make(v.DType, v.Shape...), initializer.Zero).NodeValue(rc.Graph())
		}
		return nil
	}, strategy.FunctionOptions{Name: "variables", Store: store})
	if _, err := f.Compiled(ctx); err != nil {
		return nil, 0, err
	}
	start := used()
	report, err = pretrained.Load(ctx, strat, store, file, rules, pretrained.Options{})
	return report, used() - start, err
}

// used is the processor time of this process in seconds.
func used() float64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return seconds(r.Utime) + seconds(r.Stime)
}
