package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// makers contains the functions that write the datasets. The name is the folder of the dataset.
var makers = []struct {
	name string
	make func(dir string, r *rand.Rand) error
}{
	{"adult", adultTable}, {"mnist", mnistImages(2560, 512)}, {"mnist-small", mnistImages(256, 64)},
	{"cifar", cifarImages}, {"imdb", imdbTexts},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: makedata DIR")
		os.Exit(2)
	}
	for i, m := range makers {
		dir := filepath.Join(os.Args[1], m.name)
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = m.make(dir, rand.New(rand.NewPCG(1, uint64(i))))
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "makedata: %s: %v\n", m.name, err)
			os.Exit(1)
		}
	}
}
