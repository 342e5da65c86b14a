package input_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

// recordFile writes 32 MiB of records of one size.
func recordFile(t testing.TB, size int) (path string, records int) {
	var file []byte
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * 7)
	}
	for ; len(file) < 32<<20; records++ {
		file = input.AppendTFRecord(file, data)
	}
	path = filepath.Join(t.TempDir(), fmt.Sprintf("%d.tfrecord", size))
	require.NoError(t, os.WriteFile(path, file, 0o600))
	return path, records
}

// readAll reads a file as a dataset and returns the number of records.
func readAll(t testing.TB, path string) (n int) {
	it, err := input.TFRecords([]string{path}, input.FileOptions{}).Open(context.Background())
	require.NoError(t, err)
	defer it.Close()
	for ; ; n++ {
		if _, err := it.Next(context.Background()); err == io.EOF {
			return n
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// plainLoop reads the same records into one buffer and checks both checksums: what a dataset cannot
// do without.
func plainLoop(t testing.TB, path string) (n int) {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	r, sums, data := bufio.NewReaderSize(f, 64<<10), crc32.MakeTable(crc32.Castagnoli), []byte(nil)
	head := make([]byte, 12)
	masked := func(b []byte) uint32 {
		crc := crc32.Checksum(b, sums)
		return (crc>>15 | crc<<17) + 0xa282ead8
	}
	for ; ; n++ {
		if _, err := io.ReadFull(r, head); err == io.EOF {
			return n
		} else if err != nil {
			t.Fatal(err)
		}
		size := int(binary.LittleEndian.Uint64(head)) + 4
		data = slices.Grow(data[:0], size)[:size]
		if _, err := io.ReadFull(r, data); err != nil {
			t.Fatal(err)
		}
		if masked(head[:8]) != binary.LittleEndian.Uint32(head[8:]) ||
			masked(data[:size-4]) != binary.LittleEndian.Uint32(data[size-4:]) {
			t.Fatal("checksum")
		}
	}
}

func TestShortTFRecordsAreReadWithoutAnAllocationEach(t *testing.T) {
	path, records := recordFile(t, 200)
	require.Equal(t, records, readAll(t, path))
	perRecord := testing.AllocsPerRun(1, func() { readAll(t, path) }) / float64(records)
	require.Less(t, perRecord, 0.05)
}

// processorTime is the time that all threads of this process have had on processors, those that
// collect garbage too: other processes on the machine do not change it much.
func processorTime(t testing.TB) time.Duration {
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkTFRecords reads records of a size from the page cache; the ratio is that of its speed to
// the plain loop's by processor time, the best of each, in turn.
func BenchmarkTFRecords(b *testing.B) {
	held := make([]byte, 64<<20) // a trainer's heap is larger than a benchmark's, and collected less often
	defer runtime.KeepAlive(held)
	for _, size := range []int{100, 1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			path, _ := recordFile(b, size)
			best := [2]time.Duration{time.Hour, time.Hour}
			b.SetBytes(32 << 20)
			b.ReportAllocs()
			for b.Loop() {
				start := processorTime(b)
				readAll(b, path)
				middle := processorTime(b)
				plainLoop(b, path)
				best[0], best[1] = min(best[0], middle-start), min(best[1], processorTime(b)-middle)
			}
			b.ReportMetric(float64(best[1])/float64(best[0]), "of-plain")
			b.ReportMetric(32/best[0].Seconds()/1024, "GiB/s")
		})
	}
}
