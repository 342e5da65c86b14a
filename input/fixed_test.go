package input_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

func TestFixedRecordsLeaveOutHeaderAndFooter(t *testing.T) {
	paths, opts := memorySource("HHabcdefF", "HHF", "HHghiF")
	ds := input.FixedRecords(paths, input.FixedOptions{FileOptions: opts, RecordBytes: 3, HeaderBytes: 2, FooterBytes: 1})
	var got []string
	for e, err := range ds.All(context.Background()) {
		require.NoError(t, err)
		v, err := input.Flat[uint8](e.Leaf())
		require.NoError(t, err)
		got = append(got, string(v))
	}
	assert.Equal(t, []string{"abc", "def", "ghi"}, got)
}

func TestFixedRecordsRefuseOddLength(t *testing.T) {
	for _, content := range []string{"HabcdeF", "H", ""} {
		paths, opts := memorySource(content)
		ds := input.FixedRecords(paths, input.FixedOptions{FileOptions: opts, RecordBytes: 3, HeaderBytes: 1, FooterBytes: 1})
		it, err := ds.Open(context.Background())
		require.NoError(t, err)
		_, err = it.Next(context.Background())
		assert.ErrorIs(t, err, input.ErrCorrupt, "%q", content)
	}
}
