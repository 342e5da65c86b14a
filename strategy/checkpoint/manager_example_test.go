package checkpoint_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

// A manager saves in the background and keeps the newest checkpoints.
func ExampleManager() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	place, err := storage.Open(ctx, dir) // or a URL of a scheme that an imported package registered
	if err != nil {
		log.Fatal(err)
	}
	defer place.Close()
	m, err := checkpoint.NewManager(ctx, place, checkpoint.ManagerOptions{Retention: checkpoint.Retention{Last: 2}})
	if err != nil {
		log.Fatal(err)
	}
	store := model.NewStore()
	store.RootScope().VariableWithValue("weights", []float32{1, 2, 3})
	for step := range int64(4) {
		if err := m.Save(ctx, step, checkpoint.Store(store), checkpoint.SaveOptions{}); err != nil {
			log.Fatal(err)
		}
	}
	if err := m.Close(); err != nil { // the save under way
		log.Fatal(err)
	}
	steps, err := m.Steps(ctx)
	fmt.Println(steps, err)
	// Output: [2 3] <nil>
}
