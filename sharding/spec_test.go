package sharding_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestSpecPrints(t *testing.T) {
	tests := map[string]struct {
		spec   sharding.Spec
		text   string
		shardy string
	}{
		"scalar":        {sharding.P(), "P()", `<@mesh, []>`},
		"whole":         {sharding.P(nil, nil), "P(nil, nil)", `<@mesh, [{}, {}]>`},
		"split":         {sharding.P("replica", nil), "P(replica, nil)", `<@mesh, [{"replica"}, {}]>`},
		"several":       {sharding.P(nil, []string{"b", "a"}), "P(nil, (b, a))", `<@mesh, [{}, {"b", "a"}]>`},
		"open":          {sharding.P("replica", sharding.Open()), "P(replica, ?)", `<@mesh, [{"replica"}, {?}]>`},
		"open split":    {sharding.P(sharding.Open("replica")), "P(replica?)", `<@mesh, [{"replica", ?}]>`},
		"replicated":    {sharding.P(nil).WithReplicated("x"), "P(nil, replicated=(x))", `<@mesh, [{}], replicated={"x"}>`},
		"replicated2":   {sharding.Replicated(1), "P(nil)", `<@mesh, [{}]>`},
		"unconstrained": {sharding.Unconstrained(2), "P(?, ?)", `<@mesh, [{?}, {?}]>`},
		"leading":       {sharding.P("b").WithLeading(sharding.Dim{Axes: []string{"a"}}), "P(a, b)", `<@mesh, [{"a"}, {"b"}]>`},
		"filled":        {sharding.P("b").WithRank(3), "P(b, nil, nil)", `<@mesh, [{"b"}, {}, {}]>`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.text, test.spec.String())
			assert.Equal(t, test.shardy, test.spec.ShardyBare("mesh"))
			assert.Equal(t, "#sdy.sharding"+test.shardy, test.spec.Shardy("mesh"))
			for _, text := range []string{test.shardy, "#sdy.sharding" + test.shardy} {
				meshName, back, err := sharding.ParseShardy(text)
				require.NoError(t, err)
				assert.Equal(t, "mesh", meshName)
				assert.True(t, back.Equal(test.spec), "%v != %v", back, test.spec)
			}
		})
	}
}

func TestSpecValidateReportsEveryProblem(t *testing.T) {
	m := mesh2x4(t)
	err := sharding.P("model", "replica", []string{"replica", "logical"}).ValidateTensor(m, "weights", []int{4, 3, 9, 5})
	var got []sharding.SpecError
	for _, e := range sharding.SpecErrors(err) {
		got = append(got, sharding.SpecError{Problem: e.Problem, Tensor: e.Tensor, Dim: e.Dim, DimSize: e.DimSize, Axis: e.Axis, AxisSize: e.AxisSize})
		assert.NotEmpty(t, e.Hint)
	}
	assert.Equal(t, []sharding.SpecError{
		{Problem: sharding.UnknownAxis, Tensor: "weights", Dim: 0, Axis: "model"},
		{Problem: sharding.RepeatedAxis, Tensor: "weights", Dim: 2, Axis: "replica", AxisSize: 2},
		{Problem: sharding.RankMismatch, Tensor: "weights", Dim: -1},
		{Problem: sharding.Indivisible, Tensor: "weights", Dim: 1, DimSize: 3, Axis: "replica", AxisSize: 2},
		{Problem: sharding.Indivisible, Tensor: "weights", Dim: 2, DimSize: 9, Axis: "replica, logical", AxisSize: 8},
	}, got)
	var one *sharding.SpecError
	require.ErrorAs(t, err, &one)
	assert.Equal(t, `sharding: tensor "weights": dimension 0: the mesh has no axis "model"; Mesh(replica=2, logical=4) has axes replica, logical`, one.Error())
}

func TestSpecValidateNamesTheWayOut(t *testing.T) {
	m := mesh2x4(t)
	tests := map[string]struct {
		spec  sharding.Spec
		shape []int
		want  string
	}{
		"indivisible": {sharding.P("logical"), []int{6}, "sharding: dimension 0: size 6 is not divisible by 4 (axes logical); pad the dimension to 8, or leave it whole (nil)"},
		"short":       {sharding.P("logical"), []int{8, 2}, "sharding: rank mismatch; P(logical) has 1 parts and the tensor's shape [8 2] has rank 2; write P(logical, nil)"},
		"long":        {sharding.P("logical", nil), []int{8}, "sharding: rank mismatch; P(logical, nil) has 2 parts and the tensor's shape [8] has rank 1; write P(logical)"},
		"negative":    {sharding.P(nil), []int{-1}, "sharding: dimension 0: size -1 is negative; give the static size"},
		"bad part":    {sharding.P(7), []int{8}, "sharding: dimension 0: bad part; a part is nil, a string, a []string or a sharding.Dim, not int"},
		"replicated":  {sharding.P("logical").WithReplicated("logical"), []int{8}, `sharding: axis "logical" is used more than once; an axis splits or replicates a tensor once; remove one of its uses`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			assert.EqualError(t, test.spec.Validate(m, test.shape), test.want)
		})
	}
	assert.NoError(t, sharding.P("logical", nil).Validate(m, []int{0, 3}))
	assert.Error(t, sharding.P(7).Err())
	assert.NoError(t, sharding.P(nil).Err())
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
	assert.Equal(t, "P((a, b))", s.String())
	assert.Equal(t, "P((a, b), nil)", longer.String())
}

func TestSpecCanonicalSortsReplicatedAxesOnly(t *testing.T) {
	m := mesh(t, sharding.Axis{Name: "a", Size: 2}, sharding.Axis{Name: "b", Size: 2}, sharding.Axis{Name: "c", Size: 2}, sharding.Axis{Name: "d", Size: 2})
	s := sharding.P([]string{"d", "c"}).WithReplicated("b", "a")
	assert.Equal(t, `<@m, [{"d", "c"}], replicated={"a", "b"}>`, s.Canonical(m).ShardyBare("m"))
}

func TestParseShardyRefuses(t *testing.T) {
	tests := map[string]struct {
		text        string
		unsupported bool
	}{
		"empty":           {"", false},
		"no mesh":         {`<[{}]>`, false},
		"open not last":   {`<@m, [{?, "x"}]>`, false},
		"unclosed":        {`<@m, [{"x"}]`, false},
		"unclosed string": {`<@m, [{"x}]>`, false},
		"trailing":        {`<@m, [{}]> x`, false},
		"twice":           {`<@m, [{}], replicated={"x"}, replicated={"y"}>`, false},
		"empty axis":      {`<@m, [{""}]>`, false},
		"bad escape":      {`<@m, [{"\q"}]>`, false},
		"sub-axis":        {`<@m, [{"x":(1)2}]>`, true},
		"priority":        {`<@m, [{"x"}p1]>`, true},
		"unreduced":       {`<@m, [{}], unreduced={"x"}>`, true},
		"inline mesh":     {`<mesh<["x"=2]>, [{}]>`, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := sharding.ParseShardy(test.text)
			var syntax *sharding.SyntaxError
			require.ErrorAs(t, err, &syntax)
			assert.Equal(t, test.unsupported, errors.Is(err, errors.ErrUnsupported), err)
		})
	}
	_, _, err := sharding.ParseShardyMesh(`sdy.mesh @m = <["a"=2], device_ids=[1, 0]>`)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestShardyRoundTrips(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		m := randomMesh(t, rng)
		name, gotMesh, err := sharding.ParseShardyMesh(m.Shardy("the mesh"))
		require.NoError(t, err)
		require.Equal(t, "the mesh", name)
		require.True(t, m.Equal(gotMesh))
		spec, _ := randomSpec(t, rng, m)
		_, got, err := sharding.ParseShardy(spec.Shardy("m"))
		require.NoError(t, err)
		require.True(t, spec.Equal(got), "%v != %v", spec, got)
	}
}

func FuzzParseShardy(f *testing.F) {
	for _, seed := range []string{
		`#sdy.sharding<@mesh, [{"replica"}, {?}], replicated={"x"}>`, `<@"a b", [{"x", ?}]>`, `<@m, []>`,
		`<@m, [{"x":(1)2}p1]>`, `<@m, [{"\41\\\"\n"}]>`, `sdy.mesh @mesh = <["replica"=2, "logical"=4]>`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if name, spec, err := sharding.ParseShardy(text); err == nil {
			again := spec.Shardy(name)
			name2, spec2, err := sharding.ParseShardy(again)
			require.NoError(t, err, again)
			require.Equal(t, name, name2)
			require.True(t, spec.Equal(spec2), again)
		}
		if name, m, err := sharding.ParseShardyMesh(text); err == nil {
			name2, m2, err := sharding.ParseShardyMesh(m.Shardy(name))
			require.NoError(t, err)
			require.Equal(t, name, name2)
			require.True(t, m.Equal(m2))
		}
	})
}

func TestSpecTellsItsParts(t *testing.T) {
	s := sharding.P("a", nil, sharding.Open("b")).WithReplicated("c")
	assert.Equal(t, sharding.Dim{Axes: []string{"b"}, Open: true}, s.Dim(2))
	assert.Equal(t, sharding.Dim{}, s.Dim(3))
	assert.Equal(t, []string{"a", "b"}, s.UsedAxes())
	assert.Equal(t, []string{"c"}, s.ReplicatedAxes())
	assert.False(t, s.IsReplicated())
	assert.True(t, sharding.Unconstrained(2).IsReplicated())
	assert.Equal(t, 3, s.Rank())
	assert.Equal(t, 2, mesh2x4(t).Rank())
	assert.Equal(t, `{"replica", "logical"}`, sharding.ShardyAxes(mesh2x4(t).SortAxes([]string{"logical", "replica"})))
	assert.Equal(t, "Problem(0)", sharding.Problem(0).String())
	assert.Equal(t, "indivisible", sharding.Indivisible.String())
}

func TestSyntaxErrorPointsAtThePlace(t *testing.T) {
	_, _, err := sharding.ParseShardy(`<@m, [{"x"}, {"y]>`)
	assert.EqualError(t, err, "sharding: Shardy sharding: a string ends before its quote at offset 18, near \"\"")
	_, err = sharding.ParseOpSharding("{devices=[2,x]}")
	assert.EqualError(t, err, "sharding: HLO sharding: expected a number at offset 12, near \"x]}\"")
}
