package child

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTailKeepsTheEndFromTheStartOfALine(t *testing.T) {
	log := &tail{limit: 16}
	for _, text := range []string{"one\n", "two\n", "three\n", "four\n", "five"} {
		_, err := log.Write([]byte(text))
		require.NoError(t, err)
	}
	require.Equal(t, "three\nfour\nfive", log.String())
	_, err := log.Write([]byte("\xff and more than the limit holds"))
	require.NoError(t, err)
	require.Equal(t, "n the limit holds", "n "+log.String()[len(log.String())-15:])
}
