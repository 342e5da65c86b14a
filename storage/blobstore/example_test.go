package blobstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"gocloud.dev/blob/memblob"

	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/storage/blobstore"
	_ "github.com/tpustrategy/tpustrategy/storage/blobstore/mem" // or gcs, for gs://bucket/run
)

// A URL is opened by the package that was imported for its scheme.
func Example() {
	ctx := context.Background()
	store, err := storage.Open(ctx, "mem://example/run")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	once := storage.PutOptions{IfAbsent: true}
	fmt.Println(storage.PutBytes(ctx, store, "step-0000000012/checkpoint.json", []byte("{}"), once))
	err = storage.PutBytes(ctx, store, "step-0000000012/checkpoint.json", []byte("a rival's"), once)
	fmt.Println(errors.Is(err, storage.ErrExists))
	infos, err := store.List(ctx, "step-")
	if err != nil {
		log.Fatal(err)
	}
	for _, info := range infos {
		fmt.Println(info.Name, info.Size)
	}
	// Output:
	// <nil>
	// true
	// step-0000000012/checkpoint.json 2
}

// A bucket that the program opened itself becomes a store.
func ExampleNew() {
	store, err := blobstore.New(memblob.OpenBucket(nil), blobstore.Options{Name: "memory", Prefix: "run"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	_, err = store.Open(context.Background(), "status/host-0003.json")
	var e *blobstore.Error
	fmt.Println(errors.As(err, &e), e.Reason)
	// Output: true there is no such object
}
