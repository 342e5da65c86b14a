package trainer

import (
	"flag"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
)

func TestAModelThatDoesNotFitIsRefused(t *testing.T) {
	const billion = 1_000_000_000
	for line, needs := range map[string]int64{ // GB for a billion parameters
		"-replicas 1": 12, "-replicas 4": 48, "": 96, "-logical 2": 48, "-replicas 4 -shard-state optimizer": 24,
		"-replicas 4 -shard-state gradients": 24, "-replicas 4 -shard-state parameters": 12,
	} {
		f := AddFlags(flag.NewFlagSet("program", flag.ContinueOnError), Defaults{Steps: 1, Devices: 8})
		require.NoError(t, f.Parse(strings.Fields(line), &strings.Builder{}))
		memory := func() int64 { return needs * billion }
		assert.NoError(t, f.checkMemory(billion, memory), line)
		err := f.checkMemory(billion+1, memory)
		assert.Equal(t, errkind.ResourceExhaustedError, errkind.KindOf(err), line)
		assert.ErrorContains(t, err, "-shard-state parameters", line)
		f.Devices = 0
		assert.NoError(t, f.checkMemory(1000*billion, memory), "on a TPU the compiler says it")
	}
}

func TestFreeMemoryIsThatOfTheMachine(t *testing.T) {
	assert.Positive(t, freeMemory())
	assert.Less(t, freeMemory(), int64(math.MaxInt64))
}
