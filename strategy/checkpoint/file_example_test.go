package checkpoint_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

// folder saves a store as the checkpoint of step 7.
func folder(path string) *checkpoint.Manager {
	store := model.NewStore()
	_ = strategytest.OK(store.CreateVariable("/w", tensors.FromValue([]float32{1, 2})))
	m := strategytest.OK(checkpoint.OpenManager(context.Background(), path, checkpoint.ManagerOptions{}))
	if err := m.Save(context.Background(), 7, checkpoint.StoreGroup(store), checkpoint.SaveOptions{}); err != nil {
		panic(err)
	}
	if err := m.Wait(context.Background()); err != nil {
		panic(err)
	}
	return m
}

// All variables are exported to one file, which other programs and OpenFile can read.
func ExampleCheckpoint_Export() {
	ctx, dir := context.Background(), strategytest.OK(os.MkdirTemp("", "checkpoint-"))
	defer os.RemoveAll(dir)
	m := folder(filepath.Join(dir, "run"))
	defer m.Close()
	c := strategytest.OK(m.Latest(ctx))
	defer c.Close()
	path := filepath.Join(dir, "model.safetensors")
	if err := c.Export(ctx, path, checkpoint.ExportOptions{}); err != nil {
		panic(err)
	}
	file := strategytest.OK(checkpoint.OpenFile(path, checkpoint.FileOptions{}))
	defer file.Close()
	for _, v := range file.Variables() {
		fmt.Println(v.Path, v.Shape)
	}
	// Output: /w (Float32)[2]
}

// The file may come from any program.
func ExampleOpenFile() {
	ctx, dir := context.Background(), strategytest.OK(os.MkdirTemp("", "checkpoint-"))
	defer os.RemoveAll(dir)
	m := folder(filepath.Join(dir, "run"))
	defer m.Close()
	path := filepath.Join(dir, "model.safetensors")
	c := strategytest.OK(m.Open(ctx, 7))
	defer c.Close()
	if err := c.Export(ctx, path, checkpoint.ExportOptions{}); err != nil {
		panic(err)
	}
	file := strategytest.OK(checkpoint.OpenFile(path, checkpoint.FileOptions{}))
	defer file.Close()
	store := model.NewStore()
	err := file.Restore(ctx, checkpoint.StoreGroup(store), checkpoint.RestoreOptions{})
	fmt.Println(store.GetVariable("/w").MustValue().Value(), err)
	// Output: [1 2] <nil>
}

// Open opens the checkpoint of a step.
func ExampleManager_Open() {
	ctx, dir := context.Background(), strategytest.OK(os.MkdirTemp("", "checkpoint-"))
	defer os.RemoveAll(dir)
	m := folder(dir)
	defer m.Close()
	c := strategytest.OK(m.Open(ctx, 7))
	fmt.Println(c.Step(), c.Close())
	_, err := m.Open(ctx, 8)
	fmt.Println(err != nil)
	// Output:
	// 7 <nil>
	// true
}

// A run returns to an earlier step.
func ExampleManager_RemoveAfter() {
	ctx, dir := context.Background(), strategytest.OK(os.MkdirTemp("", "checkpoint-"))
	defer os.RemoveAll(dir)
	m := folder(dir)
	defer m.Close()
	err := m.RemoveAfter(ctx, 5)
	fmt.Println(strategytest.OK(m.Steps(ctx)), err)
	// Output: [] <nil>
}

// All variables of a strategy with two replicas are saved and restored into another program's
// strategy.
func ExampleStrategyGroup() {
	ctx, dir := context.Background(), strategytest.OK(os.MkdirTemp("", "checkpoint-"))
	defer os.RemoveAll(dir)
	s, done := strategytest.Example(2, 1)
	defer done()
	store := model.NewStore()
	_ = strategytest.OK(store.CreateVariable("/w", tensors.FromValue([]float32{1, 2})))
	m := strategytest.OK(checkpoint.OpenManager(ctx, dir, checkpoint.ManagerOptions{Strategy: s}))
	defer m.Close()
	if err := m.Save(ctx, 1, checkpoint.StrategyGroup(s, store), checkpoint.SaveOptions{}); err != nil {
		panic(err)
	}
	if err := m.Wait(ctx); err != nil { // it continues in the background
		panic(err)
	}
	last := strategytest.OK(m.Latest(ctx))
	defer last.Close()
	other := model.NewStore()
	err := last.Restore(ctx, checkpoint.StrategyGroup(s, other), checkpoint.RestoreOptions{})
	fmt.Println(last.Step(), err)
	// Output: 1 <nil>
}

// A GoMLX store is saved without devices.
func ExampleStoreGroup() {
	store := model.NewStore()
	_ = strategytest.OK(store.CreateVariable("/w", tensors.FromValue([]float32{1, 2})))
	for _, v := range checkpoint.StoreGroup(store).Variables {
		fmt.Println(v.Path())
	}
	// Output: /w
}

// A folder keeps the two newest checkpoints.
func ExampleOpenManager() {
	dir := strategytest.OK(os.MkdirTemp("", "checkpoint-"))
	defer os.RemoveAll(dir)
	m, err := checkpoint.OpenManager(context.Background(), dir,
		checkpoint.ManagerOptions{Retention: checkpoint.Retention{Last: 2}})
	if err != nil {
		panic(err)
	}
	fmt.Println(m.Steps(context.Background()))
	fmt.Println(m.Close())
	// Output:
	// [] <nil>
	// <nil>
}
