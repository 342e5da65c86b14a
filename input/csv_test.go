package input_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

func TestCSVReadsColumnsByTitleAndKind(t *testing.T) {
	paths, opts := memorySource("\ufeffname,x,y,ok\n\"a, \"\"b\"\"\",1.5, 7 ,true\nc,,8,false\n",
		"ok,y,x,name\ntrue,9,2,d\n", "")
	ds := input.CSV(paths, input.CSVOptions{FileOptions: opts, Header: true, Columns: []input.Column{
		{Name: "y", Kind: input.Int16}, {Name: "x", Kind: input.Float32, Default: "-1"}, {Name: "name", Kind: input.String},
		{Name: "ok", Kind: input.Bool},
	}})
	var got []string
	for e, err := range ds.Batch(9, false).All(context.Background()) {
		require.NoError(t, err)
		require.Equal(t, []string{"name", "ok", "x", "y"}, e.Keys())
		for _, x := range e.Leaves() {
			got = append(got, x.String())
		}
		name, _ := e.Get("name")
		y, _ := e.Get("y")
		x, _ := e.Get("x")
		assert.Equal(t, []string{`a, "b"`, "c", "d"}, name.Leaf().Flat())
		assert.Equal(t, []int16{7, 8, 9}, y.Leaf().Flat())
		assert.Equal(t, []float32{1.5, -1, 2}, x.Leaf().Flat())
	}
	assert.Equal(t, []string{"string[3]", "bool[3]", "float32[3]", "int16[3]"}, got)
}

func TestCSVMayBeginWithAByteOrderMark(t *testing.T) {
	columns := []input.Column{{Name: "a", Kind: input.Int32}, {Name: "b", Index: 1, Kind: input.Int32}}
	for name, c := range map[string]struct {
		text   string
		header bool
	}{
		"titles":        {"\ufeffa,b\n1,2\n3,4\n", true},
		"quoted titles": {"\ufeff\"a\",\"b\"\r\n1,2\r\n3,4\r\n", true},
		"no titles":     {"\ufeff1,2\n3,4\n", false},
		"quoted":        {"\ufeff\"1\",2\n3,4", false},
	} {
		paths, opts := memorySource(c.text, c.text)
		ds := input.CSV(paths, input.CSVOptions{FileOptions: opts, Columns: columns, Header: c.header})
		it, err := ds.Open(context.Background())
		require.NoError(t, err, name)
		first := drain(t, it, 1)
		state, err := it.State()
		require.NoError(t, err, name)
		require.NoError(t, it.Close())
		require.Equal(t, []string{".aint32[] [1] .bint32[] [2] "}, first, name)
		it, err = ds.OpenAt(context.Background(), input.Pass{}, state)
		require.NoError(t, err, name)
		assert.Len(t, drain(t, it, 9), 3, name)
		require.NoError(t, it.Close())
	}
}

func TestCSVWithTitlesThatNobodyTookOutSaysSo(t *testing.T) {
	column := []input.Column{{Name: "x", Kind: input.Float32}}
	read := func(text string) (err error) {
		paths, opts := memorySource(text)
		for _, e := range input.CSV(paths, input.CSVOptions{FileOptions: opts, Columns: column}).All(context.Background()) {
			err = e
		}
		return err
	}
	assert.ErrorContains(t, read("x,y\n1,2\n"), "set CSVOptions.Header")
	err := read("1,2\nx,y\n")
	require.ErrorIs(t, err, input.ErrCorrupt)
	assert.NotContains(t, err.Error(), "Header", "a later record is no title")
}

func TestCSVRefusesWhatDoesNotParse(t *testing.T) {
	column := func(kind input.Kind) []input.Column { return []input.Column{{Name: "v", Kind: kind, Index: 1}} }
	for name, c := range map[string]struct {
		text   string
		kind   input.Kind
		header bool
	}{
		"not a number":     {"a,b\n", input.Int32, false},
		"out of range":     {"a,300\n", input.Uint8, false},
		"empty":            {"a,\n", input.Float64, false},
		"too few fields":   {"a\n", input.String, false},
		"uneven records":   {"a,1\nb,2,3\n", input.String, false},
		"bare quote":       {"a,b\"c\n", input.String, false},
		"no such title":    {"x,y\n1,2\n", input.String, true},
		"not a truth":      {"a,maybe\n", input.Bool, false},
		"not complex":      {"a,1+\n", input.Complex64, false},
		"not half a float": {"a,x\n", input.Float16, false},
	} {
		paths, opts := memorySource(c.text)
		ds := input.CSV(paths, input.CSVOptions{FileOptions: opts, Header: c.header, Columns: column(c.kind)})
		var err error
		for _, e := range ds.All(context.Background()) {
			err = e
		}
		assert.ErrorIs(t, err, input.ErrCorrupt, name)
	}
}

func FuzzCSV(f *testing.F) {
	f.Add("a,b\n1,2\n", true)
	f.Add("1,\"x\ny\"\n", false)
	f.Fuzz(func(t *testing.T, text string, header bool) {
		paths, opts := memorySource(text)
		ds := input.CSV(paths, input.CSVOptions{FileOptions: opts, Header: header,
			Columns: []input.Column{{Name: "a", Kind: input.Float32}, {Name: "b", Index: 1, Kind: input.String}}})
		for _, err := range ds.All(context.Background()) {
			if err != nil {
				require.ErrorIs(t, err, input.ErrCorrupt)
			}
		}
	})
}

func TestCSVReadsEveryKind(t *testing.T) {
	for k := input.Bool; k <= input.String; k++ {
		paths, opts := memorySource("1\n0\n")
		ds := input.CSV(paths, input.CSVOptions{FileOptions: opts, Columns: []input.Column{{Name: "v", Kind: k}}})
		for e, err := range ds.Batch(2, true).All(context.Background()) {
			require.NoError(t, err)
			x := e.At(0).Leaf()
			assert.Equal(t, k, x.Kind())
			text := fmt.Sprint(x.Flat())
			if k != input.Float16 && k != input.BFloat16 {
				assert.Contains(t, []string{"[1 0]", "[true false]", "[(1+0i) (0+0i)]"}, text)
			}
			assert.NotEqual(t, text, fmt.Sprint(mustZeros(t, k).Flat()))
		}
	}
}
