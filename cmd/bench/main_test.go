package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
