package digits_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/csv"
	"flag"
	"io"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input/digits"
)

var update = flag.Bool("update", false, "write the IDX files anew")

// TestTheIDXFilesAreThoseOfTheTable makes them of the table.
func TestTheIDXFilesAreThoseOfTheTable(t *testing.T) {
	unzipped, err := gzip.NewReader(digits.Open())
	require.NoError(t, err)
	lines, err := csv.NewReader(unzipped).ReadAll()
	require.NoError(t, err)
	images, labels := map[string][]byte{}, map[string][]byte{}
	for i, fields := range lines {
		set := "train"
		if i/10%5 == 4 { // the classes come in turns
			set = "t10k"
		}
		for at, field := range fields {
			n, err := strconv.Atoi(field)
			require.NoError(t, err)
			if at == 64 {
				labels[set] = append(labels[set], byte(n))
			} else {
				images[set] = append(images[set], byte((n*255+8)/16))
			}
		}
	}
	for _, set := range []string{"train", "t10k"} {
		n := uint32(len(labels[set]))
		same(t, set+"-images-idx3-ubyte.gz", images[set], n, 8, 8)
		same(t, set+"-labels-idx1-ubyte.gz", labels[set], n)
	}
}

func same(t *testing.T, name string, data []byte, dims ...uint32) {
	file := []byte{0, 0, 8, byte(len(dims))}
	for _, d := range dims {
		file = binary.BigEndian.AppendUint32(file, d)
	}
	file = append(file, data...)
	if *update {
		var b bytes.Buffer
		w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		require.NoError(t, err)
		_, err = w.Write(file)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		require.NoError(t, os.WriteFile(name, b.Bytes(), 0o644))
	}
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	require.NoError(t, err)
	got, err := io.ReadAll(unzipped)
	require.NoError(t, err)
	require.True(t, bytes.Equal(file, got), name)
}
