package child

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTailStartsAtLine(t *testing.T) {
	log := &outputTail{limit: 16}
	for _, text := range []string{"one\n", "two\n", "three\n", "four\n", "five"} {
		_, err := log.Write([]byte(text))
		require.NoError(t, err)
	}
	require.Equal(t, "three\nfour\nfive", log.String())
	_, err := log.Write([]byte("\xff and more than the limit holds"))
	require.NoError(t, err)
	require.Equal(t, "n the limit holds", "n "+log.String()[len(log.String())-15:])
}

func TestTailEndsBeforeRuntimeReport(t *testing.T) {
	report := "SIGABRT: abort\nPC=0x7f m=4 sigcode=1\n" + strings.Repeat("goroutine 8\n", 100)
	for _, piece := range []int{1, 3, 7, len(report)} {
		log := &outputTail{limit: 300}
		output := "first line\nCheck failed: this plugin aborts\n"
		for part := range slices.Chunk([]byte(output+report), piece) {
			_, err := log.Write(part)
			require.NoError(t, err)
		}
		require.Equal(t, strings.TrimSpace(output), log.String(), piece)
		require.Equal(t, "SIGABRT: abort", log.signal())
	}
	log := &outputTail{limit: 300}
	_, err := log.Write([]byte("it spoke of a SIGABRT: abort\nPC=1\nand went on\n"))
	require.NoError(t, err)
	require.Empty(t, log.signal())
	require.Equal(t, "it spoke of a SIGABRT: abort\nPC=1\nand went on", log.String())
}
