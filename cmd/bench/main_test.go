package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tpustrategy/internal/plugintest"
)

// The benchmarks that start processes start this one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-child" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Every benchmark runs, for a moment.
func TestEveryBenchmarkRuns(t *testing.T) {
	plugintest.Path(t, "cpu")
	effort = 0.01
	defer func() { effort = 1 }()
	for _, b := range benches {
		t.Run(fmt.Sprintf("%s on %d", b.name, b.devices), func(t *testing.T) {
			r, err := b.run(t.Context(), b.devices)
			require.NoError(t, err)
			assert.Positive(t, r.Us)
		})
	}
}

func TestWordsChooseBenchmarks(t *testing.T) {
	all, err := choose(nil)
	require.NoError(t, err)
	assert.Len(t, all, len(benches))
	some, err := choose([]string{"h2d", "add"})
	require.NoError(t, err)
	var got []string
	for _, b := range some {
		got = append(got, b.name)
	}
	assert.Equal(t, []string{"add_one", "add_one", "add_one", "h2d"}, got)
	_, err = choose([]string{"add", "nothing"})
	assert.ErrorContains(t, err, `no benchmark is called "nothing"; there are add_one, execute_return, `)
}
