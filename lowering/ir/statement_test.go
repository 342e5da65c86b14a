package ir_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

func TestRewriteChangesNothingThatItWasGiven(t *testing.T) {
	before, _, err := sample().Text()
	require.NoError(t, err)
	m := sample()
	once := m.Functions[0].Body[0]
	out, err := ir.Rewrite(m.Functions[0].Body, func(s *ir.Statement) ([]*ir.Statement, error) {
		if s.Op != "func.call" {
			return []*ir.Statement{s}, nil
		}
		changed := *s
		changed.ReplaceAttribute(ir.CalleeKey, ir.Symbol("other"))
		return []*ir.Statement{&changed}, nil
	})
	require.NoError(t, err)
	assert.NotSame(t, once, out[0], "its region is another")
	assert.Same(t, m.Functions[0].Body[1], out[1], "nothing of it changed")
	assert.Equal(t, ir.Symbol("other"), out[0].Regions[0].Body[0].Attribute(ir.CalleeKey))
	after, _, err := m.Text()
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))

	boom := errors.New("boom")
	_, err = ir.Rewrite(m.Functions[0].Body, func(*ir.Statement) ([]*ir.Statement, error) { return nil, boom })
	assert.ErrorIs(t, err, boom)
}

func TestReadsSeeIntoRegionsAndNotWhatIsDefinedThere(t *testing.T) {
	names := func(s *ir.Statement) (all []string) {
		s.WalkOperands(func(v *ir.Value) { all = append(all, v.Name) })
		return all
	}
	m := sample()
	assert.Equal(t, []string{"p", "x"}, names(m.Functions[0].Body[0]))
	assert.Equal(t, []string{"0", "zero"}, names(m.Functions[1].Body[2]))
}

func TestFreshNamesAreNumbersBehindAllOthers(t *testing.T) {
	f := &ir.Function{NextNumber: 7}
	assert.Equal(t, "7", f.NewValue(vector).Name)
	assert.Equal(t, "8", f.NewValue(vector).Name)
	assert.Equal(t, "add", (&ir.Statement{Op: "stablehlo.add"}).OpName())
}
