package sharding_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestSpecText(t *testing.T) {
	tests := map[string]struct {
		spec   sharding.Spec
		text   string
		shardy string
	}{
		"scalar":        {sharding.P(), "()", `<@mesh, []>`},
		"whole":         {sharding.P(nil, nil), "-,-", `<@mesh, [{}, {}]>`},
		"split":         {sharding.P("replica", nil), "replica,-", `<@mesh, [{"replica"}, {}]>`},
		"several":       {sharding.P(nil, []string{"b", "a"}), "-,b+a", `<@mesh, [{}, {"b", "a"}]>`},
		"open":          {sharding.P("replica", sharding.OpenDim()), "replica,?", `<@mesh, [{"replica"}, {?}]>`},
		"open split":    {sharding.P(sharding.OpenDim("replica")), "replica?", `<@mesh, [{"replica", ?}]>`},
		"replicated":    {sharding.P(nil).WithReplicated("x"), "-,replicated=x", `<@mesh, [{}], replicated={"x"}>`},
		"replicated2":   {sharding.Replicated(1), "-", `<@mesh, [{}]>`},
		"unconstrained": {sharding.Unconstrained(2), "?,?", `<@mesh, [{?}, {?}]>`},
		"leading":       {sharding.P("b").WithLeading(sharding.Dim{Axes: []string{"a"}}), "a,b", `<@mesh, [{"a"}, {"b"}]>`},
		"filled":        {sharding.P("b").WithRank(3), "b,-,-", `<@mesh, [{"b"}, {}, {}]>`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.text, test.spec.String())
			assert.Equal(t, test.shardy, test.spec.ShardyTextBare("mesh"))
			assert.Equal(t, "#sdy.sharding"+test.shardy, test.spec.ShardyText("mesh"))
			for _, text := range []string{test.shardy, "#sdy.sharding" + test.shardy} {
				meshName, back, err := sharding.ParseShardy(text)
				require.NoError(t, err)
				assert.Equal(t, "mesh", meshName)
				assert.True(t, back.Equal(test.spec), "%v != %v", back, test.spec)
			}
		})
	}
}

func TestSpecIsImmutable(t *testing.T) {
	axes := []string{"a", "b"}
	s := sharding.P(axes)
	axes[0] = "z"
	s.Dims()[0].Axes[0] = "z"
	s.Dim(0).Axes[0] = "z"
	s.UsedAxes()[0] = "z"
	longer := s.WithRank(2)
	_ = s.WithReplicated("c")
	assert.Equal(t, "a+b", s.String())
	assert.Equal(t, "a+b,-", longer.String())
}

func TestSpecCanonicalSortsReplicatedAxesOnly(t *testing.T) {
	m := mesh(t, sharding.Axis{Name: "a", Size: 2}, sharding.Axis{Name: "b", Size: 2}, sharding.Axis{Name: "c", Size: 2},
		sharding.Axis{Name: "d", Size: 2})
	s := sharding.P([]string{"d", "c"}).WithReplicated("b", "a")
	assert.Equal(t, `<@m, [{"d", "c"}], replicated={"a", "b"}>`, s.Canonical(m).ShardyTextBare("m"))
}

func TestSpecAccessors(t *testing.T) {
	s := sharding.P("a", nil, sharding.OpenDim("b")).WithReplicated("c")
	assert.Equal(t, sharding.Dim{Axes: []string{"b"}, Open: true}, s.Dim(2))
	assert.Equal(t, sharding.Dim{}, s.Dim(3))
	assert.Equal(t, []string{"a", "b"}, s.UsedAxes())
	assert.Equal(t, []string{"c"}, s.ReplicatedAxes())
	assert.False(t, s.IsReplicated())
	assert.True(t, sharding.Unconstrained(2).IsReplicated())
	assert.Equal(t, 3, s.Rank())
	assert.Equal(t, 2, mesh2x4(t).Rank())
	assert.Equal(t, `{"replica", "logical"}`, sharding.ShardyAxisSet(mesh2x4(t).SortAxes([]string{"logical", "replica"})))
	assert.Equal(t, "Problem(0)", sharding.Problem(0).String())
	assert.Equal(t, "indivisible", sharding.Indivisible.String())
}
