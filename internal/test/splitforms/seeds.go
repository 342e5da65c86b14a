package splitforms

import (
	"fmt"
	"os"
	"strconv"
)

// Variable is the environment variable that sets the number of programs of a test.
const Variable = "TPUSTRATEGY_SPLIT_FORMS"

// knownDefects are seeds of programs for which XLA's partitioner computes wrong gradients unless
// package lowering applies its workaround.
var knownDefects = []uint64{27, 30, 74, 138, 341}

// Case is a program and the mesh on which it runs.
type Case struct {
	Form
	Replicas int
}

// String returns the seed and the mesh.
func (c Case) String() string { return fmt.Sprintf("%d on %dx%d", c.Seed, c.Replicas, c.Parts) }

// Cases returns the programs for the first count seeds and for known defects. If [Variable] is set,
// it returns only the programs for that number of first seeds.
func Cases(count int) (cases []Case, err error) {
	seeds := knownDefects
	if text := os.Getenv(Variable); text != "" {
		if count, err = strconv.Atoi(text); err != nil {
			return nil, fmt.Errorf("%s: %w", Variable, err)
		}
		seeds = nil
	}
	for n := range count {
		seeds = append(seeds[:len(seeds):len(seeds)], uint64(n))
	}
	meshes := [][2]int{{1, 2}, {1, 4}, {1, 8}, {2, 4}} // replicas and logical devices
	for _, seed := range seeds {
		mesh := meshes[seed%uint64(len(meshes))]
		cases = append(cases, Case{New(seed, mesh[1]), mesh[0]})
	}
	return cases, nil
}
