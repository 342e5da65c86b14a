package checkpoint

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChecksumsOfPiecesMakeThatOfTheWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 300_000)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	for range 200 {
		n, cut := rng.IntN(len(data)+1), 0
		if n > 0 {
			cut = rng.IntN(n + 1)
		}
		a, b := checksum(0).plus(data[:cut]), checksum(0).plus(data[cut:n])
		require.Equal(t, checksum(0).plus(data[:n]), a.then(b, int64(n-cut)), "%d bytes, cut at %d", n, cut)
	}
	// As for a file of 5 TB, whose length has more bits than the polynomial.
	long := checksum(0x1234)
	for range 5 {
		long = long.then(0, 1<<40)
	}
	require.Equal(t, checksum(0x1234).then(0, 5<<40), long)
}
