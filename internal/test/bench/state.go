package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// variable is a variable that a step declares.
type variable struct {
	path  string
	shape shapes.Shape
}

// float32s returns n variables of the same shape. Their paths begin with name.
func float32s(name string, n int, dims ...int) (all []variable) {
	for i := range n {
		all = append(all, variable{fmt.Sprintf("/%s%d", name, i), shapes.Make(dtypes.Float32, dims...)})
	}
	return all
}

// parts returns options for one device, or for replicas of 2 logical devices over which the rules
// shard variables.
func (r *rig) parts(rules logical.Rules) strategy.Options {
	if r.devices == 1 {
		rules = nil
	}
	return strategy.Options{LogicalDevices: min(r.devices, 2), Variables: rules}
}

// declared returns a step that only declares variables.
func declared(strat *strategy.TPUStrategy, store *model.Store, all []variable,
	first model.VariableInitializer) *strategy.Function {
	return strat.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		for _, v := range all {
			rc.Scope().Store().VariableWithShape(v.path, v.shape, first).NodeValue(rc.Graph())
		}
		return nil
	}, strategy.FunctionOptions{Name: "variables", Store: store})
}

// random returns bytes that represent numbers without large exponents.
func random(n int) []byte {
	rng := rand.New(rand.NewPCG(1, 1))
	block := make([]byte, 1<<16)
	for i := range block {
		block[i] = byte(rng.Uint32()) &^ 0x40
	}
	return bytes.Repeat(block, n/len(block)+1)[:n]
}

// firstValues measures the initialization of a language model with 162 million parameters: the
// token table, the output weights, and twelve blocks.
func firstValues(ctx context.Context, r *rig) (row, error) {
	const blocks = 12
	vocabulary, width := sized(50257, 64)&^1, sized(768, 2)&^1
	all := append(float32s("tokens_matrix", 1, vocabulary, width), float32s("output_matrix", 1, width, vocabulary)...)
	all = append(all, float32s("qkv_matrix", blocks, width, 3*width)...)
	all = append(all, float32s("projection_matrix", blocks, width, width)...)
	all = append(all, float32s("up_matrix", blocks, width, 4*width)...)
	all = append(all, float32s("down_matrix", blocks, 4*width, width)...)
	strat, err := r.strategy(ctx, r.parts(logical.Rules{logical.Match("matrix", logical.SplitInto(1, 2))}))
	if err != nil {
		return row{}, err
	}
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1))
	step := declared(strat, store, all, initializer.XavierUniformFn(store))
	before := cpuTime()
	took, err := timed(func() error { _, err := step.Run(ctx); return err }, nil)(1)
	made := strat.Variables(store).FirstValues()
	return row{Us: us(took), CPUUs: us(cpuTime() - before),
		Note: fmt.Sprintf("making %.2f s, compiling %.2f s (%d programs), lowering %.3f s; %d on the devices, %d on the "+
			"host; peak memory %d kB",
			made.Making.Seconds(), made.Compiling.Seconds(), made.Programs, made.Lowering.Seconds(), made.OnDevices, made.OnHost,
			memoryOf("VmHWM:"))}, err
}

// memoryOf returns a field of /proc/self/status in kB, or 0 if it is not available.
func memoryOf(line string) (kB int64) {
	text, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(text), "\n"+line)
	_, _ = fmt.Sscan(rest, &kB)
	return kB
}
