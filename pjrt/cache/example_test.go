package cache_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
)

// This example compiles a program once and loads it twice.
func Example() {
	ctx := context.Background()
	userCache, err := os.UserCacheDir()
	if err != nil {
		panic(err)
	}
	found, err := pjrt.FindPlugin(pjrt.FindOptions{Kind: "cpu", Getenv: os.Getenv, GOARCH: runtime.GOARCH,
		UserCacheDir: userCache,
		Stat:         func(name string) (fs.FileInfo, error) { return os.Stat(name) }})
	if err != nil {
		panic(err)
	}
	plugin, err := pjrt.Open(found.Path)
	if err != nil {
		panic(err)
	}
	client, err := plugin.NewClient(ctx, pjrt.ClientOptions{})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	dir, err := os.MkdirTemp("", "programs-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	programs, err := cache.Open(dir, cache.Options{})
	if err != nil {
		panic(err)
	}
	for range 3 {
		x, err := programs.Compile(ctx, client, addition(1), pjrt.CompileOptions{})
		if err != nil {
			panic(err)
		}
		x.Close()
	}
	fmt.Println(programs.Stats().Misses, "compiled,", programs.Stats().Hits, "loaded")
	// Output: 1 compiled, 2 loaded
}
