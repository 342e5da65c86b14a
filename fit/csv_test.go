package fit

import (
	"context"
	"encoding/csv"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/files"
)

// follow is the state of a hook in a test without a run.
type follow struct {
	t *testing.T
	h Hook
	s *State
	// warnings are the warnings of the hook.
	warnings []string
}

// begin begins a hook at a step, as in a resumed run if the step is not 0.
func begin(t *testing.T, h Hook, resumed int64, saved []byte) (*follow, error) {
	t.Helper()
	f := &follow{t: t, h: h}
	f.s = &State{runner: &runner{hooks: []Hook{h}, options: Options{Resume: resumed > 0}}, isChief: true, step: resumed,
		resumedFrom: resumed, epoch: 1,
		warn: func(text string, _ ...any) { f.warnings = append(f.warnings, text) }}
	if h.reset != nil {
		h.reset()
	}
	if saved != nil {
		require.NoError(t, h.Load(saved))
	}
	return f, h.Begin(context.Background(), f.s)
}

// at records metrics at a step.
func (f *follow) at(step int64, metrics ...Metric) error {
	f.s.step, f.s.metrics, f.s.runner.recordStep = step, metrics, step
	return f.h.Record(context.Background(), f.s)
}

func (f *follow) end() error { return f.h.End(context.Background(), f.s, nil) }

// contents parses a CSV file.
func contents(t *testing.T, path string) [][]string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll() // returns an error for rows of different lengths
	require.NoError(t, err)
	return all
}

func loss(x float64) Metric { return Metric{Loss, x} }

func TestRowsAreThereWhenTheHookReturns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "losses.csv")
	f, err := begin(t, CSV(path), 0, nil)
	require.NoError(t, err)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "step,epoch,loss\r\n", string(data))
	require.NoError(t, f.at(1, loss(0.1)))
	assert.Equal(t, [][]string{{"step", "epoch", "loss"}, {"1", "1", "0.1"}}, contents(t, path))
	require.NoError(t, f.at(2, loss(math.NaN()), Metric{`a "quoted", name`, math.Inf(-1)}))
	require.NoError(t, f.at(3, loss(math.Inf(1))))
	require.NoError(t, f.end())
	assert.Equal(t, [][]string{{"step", "epoch", "loss", `a "quoted", name`}, {"1", "1", "0.1", ""},
		{"2", "1", "NaN", "-Inf"}, {"3", "1", "+Inf", ""}}, contents(t, path))
	assert.Empty(t, f.warnings)
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, entries, 1, "nothing is left over")
}

func TestAResumedTableHasEachStepOnce(t *testing.T) {
	for name, cut := range map[string]func(string) string{
		"whole":              func(s string) string { return s },
		"cut within a row":   func(s string) string { return s[:len(s)-4] },
		"cut within the end": func(s string) string { return s[:len(s)-1] },
		"cut before the row": func(s string) string { return strings.TrimSuffix(s, "30,1,0.3\r\n") },
	} {
		path := filepath.Join(t.TempDir(), "losses.csv")
		f, err := begin(t, CSV(path), 0, nil)
		require.NoError(t, err)
		for i := range 3 {
			require.NoError(t, f.at(int64(10*(i+1)), loss(float64(i+1)/10)))
		}
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, []byte(cut(string(data))), 0o644))

		f, err = begin(t, CSV(path), 15, nil)
		require.NoError(t, err, name)
		assert.Equal(t, [][]string{{"step", "epoch", "loss"}, {"10", "1", "0.1"}}, contents(t, path), name)
		require.NoError(t, f.at(20, loss(2)))
		require.NoError(t, f.end())
		assert.Equal(t, [][]string{{"step", "epoch", "loss"}, {"10", "1", "0.1"}, {"20", "1", "2"}}, contents(t, path), name)
	}
}

func TestATableKilledAtItsHeaderBeginsAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "losses.csv")
	for _, text := range []string{"", "step,ep"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		f, err := begin(t, CSV(path), 5, nil)
		require.NoError(t, err)
		require.NoError(t, f.at(6, loss(1)))
		require.NoError(t, f.end())
		assert.Equal(t, [][]string{{"step", "epoch", "loss"}, {"6", "1", "1"}}, contents(t, path))
	}
}

func TestFilesThatAreNoTableOfTheRunStayAsTheyAre(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "losses.csv")
	for text, resumed := range map[string]int64{
		"step,epoch,loss\r\n1,1,1\r\n":                      0, // a new run
		"my notes\n":                                        5,
		"step,epoch,loss\n1,1\n":                            5,
		"step,epoch,loss\nx,1,1\n":                          5,
		"step,epoch,loss\n2,1,1\n2,1,1\n":                   5,
		"step,epoch,\"loss\n2,1,1\n":                        5,
		"time,loss\n1,2\n":                                  5,
		"\x00\x01\x02\n":                                    5,
		"step,epoch,loss\r\n3,1,1\r\n2,1,1\r\n10,1,1\r\n\n": 5,
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		_, err := begin(t, CSV(path), resumed, nil)
		require.Error(t, err, text)
		if resumed == 0 {
			require.ErrorIs(t, err, fs.ErrExist)
		}
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(data))
	}
	for _, wrong := range []string{dir, filepath.Join(path, "below"), filepath.Join(dir, "no", "folder.csv"),
		"https://host/x.csv"} {
		_, err := begin(t, CSV(wrong), 0, nil)
		require.Error(t, err, wrong)
	}
}

// small is a file on a disk with limited space.
type small struct{ *os.File }

func (s small) WriteAt(p []byte, at int64) (int, error) {
	n, _ := s.File.WriteAt(p[:len(p)/2], at)
	return n, &fs.PathError{Op: "write", Path: s.Name(), Err: syscall.ENOSPC}
}

func TestAFullDiskLosesNoRow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "losses.csv")
	c := &csvTable{path: path}
	h := CSV(path)
	h.reset = nil
	h.Record = func(_ context.Context, s *State) error { c.addRecord(s); return nil }
	h.Begin = func(_ context.Context, s *State) error { return c.begin(t.Context(), s) }
	h.End = func(context.Context, *State, error) error { return c.close() }
	f, err := begin(t, h, 0, nil)
	require.NoError(t, err)
	require.NoError(t, f.at(1, loss(1)))
	disk, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	room := c.file.(*files.Appender).SetFile(small{disk})
	require.NoError(t, f.at(2, loss(2)))
	require.NoError(t, f.at(3, loss(3)))
	assert.Len(t, f.warnings, 1, "one warning for a disk that stays full")
	assert.Equal(t, [][]string{{"step", "epoch", "loss"}, {"1", "1", "1"}}, contents(t, path), "no half row")

	// A checkpoint saved now contains the rows.
	saved, err := c.save()
	require.NoError(t, err)
	err = f.end()
	require.ErrorIs(t, err, ErrWrite)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, errors.Join(room.Close()))

	f, err = begin(t, CSV(path), 3, saved)
	require.NoError(t, err)
	require.NoError(t, f.at(4, loss(4)))
	require.NoError(t, f.end())
	want := [][]string{{"step", "epoch", "loss"}, {"1", "1", "1"}, {"2", "1", "2"}, {"3", "1", "3"}, {"4", "1", "4"}}
	assert.Equal(t, want, contents(t, path))

	// Rows that are already in the file are not written twice, as after a kill following the write.
	_, err = begin(t, CSV(path), 4, saved)
	require.NoError(t, err)
	assert.Equal(t, want, contents(t, path))
}

// An attacker with access to the folder may create a link at the path of the table.
func TestATableIsNotWrittenThroughALink(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	for _, text := range []string{"of another program", "step,epoch,loss\r\n1,1,0.5\r\n"} {
		require.NoError(t, os.WriteFile(victim, []byte(text), 0o644))
		path := filepath.Join(t.TempDir(), "losses.csv")
		require.NoError(t, os.Symlink(victim, path))
		for _, resumed := range []int64{0, 1} {
			_, err := begin(t, CSV(path), resumed, nil)
			require.Error(t, err)
			assert.ErrorContains(t, err, path)
		}
		data, err := os.ReadFile(victim)
		require.NoError(t, err)
		assert.Equal(t, text, string(data))
	}
}
