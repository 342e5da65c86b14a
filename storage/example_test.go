package storage_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/tpustrategy/tpustrategy/storage"
)

func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := storage.Open(ctx, dir) // or a URL of a scheme that an imported package registered
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if err := storage.PutBytes(ctx, store, "status/host-0000.json", []byte(`{"step": 7}`),
		storage.PutOptions{}); err != nil {
		log.Fatal(err)
	}
	all, err := store.List(ctx, "status/")
	if err != nil {
		log.Fatal(err)
	}
	data, err := storage.ReadAll(ctx, store, all[0].Name, 1<<20)
	fmt.Println(all[0].Name, string(data), err)
	// Output: status/host-0000.json {"step": 7} <nil>
}
