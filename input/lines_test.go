package input_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

func TestLinesEndWithNewlineOrFile(t *testing.T) {
	paths, opts := memorySource("one\r\ntwo\n\nfour", "", "\n", "a\rb\n")
	got, err := stringsOf(t, input.Lines(paths, opts))
	require.NoError(t, err)
	assert.Equal(t, []string{"one", "two", "", "four", "", "a\rb"}, got)
}

func TestLongLineIsRead(t *testing.T) {
	long := strings.Repeat("x", 300_000)
	paths, opts := memorySource(long + "\nend\n")
	got, err := stringsOf(t, input.Lines(paths, opts))
	require.NoError(t, err)
	assert.Equal(t, []string{long, "end"}, got)
}
