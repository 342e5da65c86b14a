package stepfile_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
)

func TestAStepFileIsReadWithinBounds(t *testing.T) {
	strat, file := savedSum(t)
	zero, err := os.Open("/dev/zero")
	require.NoError(t, err)
	defer zero.Close()
	var refused *stepfile.Error
	_, err = stepfile.Load(t.Context(), strat, zero, nil)
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, stepfile.NotAFile, refused.Reason)
	// A file with endless data after its end, and parts of impossible sizes.
	_, err = stepfile.Load(t.Context(), strat, endless{bytes.NewReader(file)}, nil)
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, stepfile.Damaged, refused.Reason)
	huge := append(append([]byte{}, file[:17]...), 0, 0, 0, 0, 0, 0, 0, 1)
	_, err = stepfile.Load(t.Context(), strat, endless{bytes.NewReader(huge)}, nil)
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, stepfile.Damaged, refused.Reason)

	// A stream with a large program after an invalid header.
	large := append(append([]byte{}, file[:17]...), make([]byte, 16)...)
	large = binary.LittleEndian.AppendUint64(large, 1<<30)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = stepfile.Load(t.Context(), strat, endless{bytes.NewReader(large)}, nil)
	runtime.ReadMemStats(&after)
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, stepfile.Damaged, refused.Reason)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))

	// Streams with a valid header that end long before the lengths that they specify. The number of
	// bytes in the stream limits the memory.
	for _, present := range []int{0, 3 << 20, 100 << 20} {
		for part, sizes := range [][]uint64{{200 << 20}, {13, 2 << 30}, {13, 0, 2 << 30}} {
			stream := append([]byte{}, file[:17]...)
			for i, size := range sizes {
				stream = binary.LittleEndian.AppendUint64(stream, size)
				if i == 0 && len(sizes) > 1 {
					stream = append(stream, `{"version":2}`...)
				}
			}
			r := io.MultiReader(bytes.NewReader(stream), io.LimitReader(zero, int64(present)))
			runtime.GC()
			runtime.ReadMemStats(&before)
			_, err = stepfile.Load(t.Context(), strat, r, nil)
			runtime.ReadMemStats(&after)
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, stepfile.Damaged, refused.Reason)
			most := uint64(present + 24<<20)
			if 2*uint64(present) >= sizes[part] {
				most += sizes[part]
			}
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, most, "%d bytes of part %d", present, part)
		}
	}

	sum := sha256.Sum256(file)
	_, err = stepfile.Load(t.Context(), strat, bytes.NewReader(file), nil,
		stepfile.Options{SHA256: hex.EncodeToString(sum[:])})
	require.NoError(t, err)
	sum[3] ^= 1
	_, err = stepfile.Load(t.Context(), strat, bytes.NewReader(file), nil,
		stepfile.Options{SHA256: hex.EncodeToString(sum[:])})
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, stepfile.Hash, refused.Reason)
}

// endless continues with zeros after its data.
type endless struct{ r *bytes.Reader }

func (e endless) Read(p []byte) (int, error) {
	if n, _ := e.r.Read(p); n > 0 {
		return n, nil
	}
	clear(p)
	return len(p), nil
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("tpustrategy step\n"))
	f.Add(stepfile.Encode([]byte(`{"version":2}`), nil, nil))
	f.Add(stepfile.Encode(
		[]byte(`{"version":2,"axes":[{"Name":"replica","Size":2}],"arguments":[{"dtype":"Float32","spec":"#sdy.sharding<@mesh, []>","annotation":{"kind":"none"}}]}`), []byte("module"), []byte("code")))
	f.Add(stepfile.Encode(
		[]byte(`{"version":2,"steps":3,"axes":[{"Name":"replica","Size":1}],"arguments":[{"name":"v","variable":true,"distributed":{"synchronization":"ON_READ","aggregation":"SUM"},"dtype":"Float32","spec":"#sdy.sharding<@mesh, [{}]>","global":[1],"shard":[1],"per_replica":true,"annotation":{"kind":"none"}},{"name":"x","dtype":"Float32","local":[2],"global":[3,2],"shard":[3,2],"per_step":true,"spec":"#sdy.sharding<@mesh, [{}, {}]>","annotation":{"kind":"none"}}]}`), nil, nil))
	f.Add(stepfile.Encode([]byte(`{"version":9}`), nil, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		// With a valid checksum the data after it is reached.
		for _, file := range [][]byte{data, stepfile.Resum(data)} {
			if err := stepfile.Decode(file); err != nil && !strings.HasPrefix(err.Error(), "stepfile: ") {
				t.Fatal(err)
			}
		}
		if json.Valid(data) {
			_ = stepfile.Decode(stepfile.Encode(data, nil, nil))
		}
	})
}
