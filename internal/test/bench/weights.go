package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"

	"github.com/tpustrategy/tpustrategy/lm/pretrained"
	"github.com/tpustrategy/tpustrategy/lm/weights"
	"github.com/tpustrategy/tpustrategy/logical"
)

// weightsLoad measures loading a Hugging Face file of a decoder with 67 million parameters from
// bfloat16 into float32 variables, on one device or sharded over 4 replicas of 2 logical devices.
// Most matrices are transposed. The baseline reads the file.
func weightsLoad(ctx context.Context, r *rig) (row, error) {
	width := sized(768, 64) &^ 63
	c := weights.Config{Type: "llama", Layers: 6, Width: width, Heads: width / 64, KeyHeads: width / 64, HeadSize: 64,
		Hidden: width * 8 / 3 &^ 63, Vocabulary: 16000}
	rules := weights.LlamaRules(c, weights.VariableNames{})
	dir, err := r.folder()
	if err != nil {
		return row{}, err
	}
	tensors := c.Tensors("BF16")
	plan, err := weights.NewPlan(tensors, nil, rules, weights.PlanOptions{Create: dtypes.Float32})
	if err != nil {
		return row{}, err
	}
	err = plan.Write(ctx, dir, tensors, func(_ context.Context, v weights.Variable) ([]byte, error) {
		return random(int(shapes.Make(v.DType, v.Shape...).ByteSize())), nil
	}, weights.WriteOptions{})
	if err != nil {
		return row{}, err
	}
	path := filepath.Join(dir, weights.SingleName)
	file, err := weights.Open(path)
	if err != nil {
		return row{}, err
	}
	r.later(func() { _ = file.Close() })
	var all []variable
	for _, v := range plan.Variables() {
		all = append(all, variable{v.Path, shapes.Make(v.DType, v.Shape...)})
	}
	opts := r.parts(logical.Rules{
		logical.Match(`embedding/embeddings`, logical.SplitInto(2, 1)), logical.Match(`head/dense/weights`,
			logical.SplitInto(1, 2)),
		logical.Match(`/(query|key|value|gate|up)/dense/weights`, logical.SplitInto(1, 1, 2)),
		logical.Match(`/(out|down)/dense/weights`, logical.SplitInto(1, 2, 1)),
		logical.MatchState("", logical.ShardParameters),
	})
	strat, err := r.strategy(ctx, opts)
	if err != nil {
		return row{}, err
	}
	store := model.NewStore()
	if _, err := declared(strat, store, all, initializer.Zero).Compiled(ctx); err != nil {
		return row{}, err
	}
	var report *pretrained.Report
	size := 0
	result, err := repeat{turns: 7, limit: time.Minute, ops: 1}.time(timed(func() (err error) {
		report, err = pretrained.Load(ctx, strat, store, file, rules, pretrained.Options{})
		return err
	}, nil), timed(func() error {
		data, err := os.ReadFile(path)
		size = len(data)
		return err
	}, nil))
	result.GBps = round(float64(size) / result.Us / 1e3)
	result.Note += fmt.Sprintf("; %.0f MB; %v", float64(size)/1e6, report)
	return result, err
}
