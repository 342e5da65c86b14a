package checkpoint

import (
	"context"
	"fmt"
	"io"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/storage"
)

// stepped is a store that calls changed after each change, with its objects as they are on the
// disk. Package storage tests that a change is durable when the call returns, and atomic before
// that.
type stepped struct {
	*objects
	changed func(change string)
}

func (s *stepped) Put(ctx context.Context, name string, opts storage.PutOptions, write func(io.Writer) error) error {
	err := s.objects.Put(ctx, name, opts, write)
	s.changed("put " + name)
	return err
}

func (s *stepped) Remove(ctx context.Context, name string) error {
	err := s.objects.Remove(ctx, name)
	s.changed("remove " + name)
	return err
}

// After each change of a save and its retention, the test checks the store as the next run would.
func TestALossOfPowerAtAnyPointKeepsACheckpoint(t *testing.T) {
	ctx := context.Background()
	s := &stepped{objects: &objects{all: map[string]string{}}, changed: func(string) {}}
	d := run{managerOf(t, s, ManagerOptions{Retention: Retention{Last: 1}})}
	require.NoError(t, d.Save(ctx, 1, numbers(1), SaveOptions{}))
	points := 0
	seen := map[int64]bool{}
	s.changed = func(change string) {
		s.mu.Lock()
		left := managerOf(t, &objects{all: maps.Clone(s.all)}, ManagerOptions{})
		s.mu.Unlock()
		steps, err := left.Steps(ctx)
		require.NoError(t, err)
		require.NotEmpty(t, steps, change)
		for _, step := range steps { // each listed checkpoint is complete
			requireStep(t, left, step, float32(step))
			seen[step] = true
		}
		next := run{managerOf(t, left.store, ManagerOptions{Retention: Retention{Last: 1}, TakeOver: true})}
		require.NoError(t, next.Save(ctx, 9, numbers(9), SaveOptions{}), change)
		requireStep(t, next.Manager, 9, 9)
		require.Len(t, left.store.(*objects).all, 4, fmt.Sprint(change, ": the next save clears up"))
		points++
	}
	require.NoError(t, d.Save(ctx, 2, numbers(2), SaveOptions{}))
	require.Greater(t, points, 8)
	require.Equal(t, map[int64]bool{1: true, 2: true}, seen)
}
