package logical_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
)

func TestStateOf(t *testing.T) {
	variables := map[string]bool{"/weights": true, "/hidden/weights": true, "/hidden/weights_2": true,
		"/AdamOptimizer/own": true}
	for path, want := range map[string]string{
		"/AdamOptimizer/weights_1st_moment":          "/weights",
		"/AdamOptimizer/hidden/weights_1st_moment":   "/hidden/weights",
		"/AdamOptimizer/hidden/weights_2_2nd_moment": "/hidden/weights_2",
		"/a/b/hidden/weights/velocity":               "/hidden/weights",
		"/averages/step/hidden/weights":              "/hidden/weights",
		"/hidden/weights":                            "/weights", // not the variable itself
		"/weights":                                   "",
		"/AdamOptimizer/own":                         "",
		"/global_step":                               "",
		"":                                           "",
	} {
		assert.Equal(t, want, logical.OwnerOfState(path, func(path string) bool { return variables[path] }), path)
	}
}

func TestParseStateSharding(t *testing.T) {
	for name, want := range map[string]logical.StateSharding{
		"none": logical.ShardNothing, "optimizer": logical.ShardOptimizer, "gradients": logical.ShardGradients,
		"parameters": logical.ShardParameters,
	} {
		got, err := logical.ParseStateSharding(name)
		require.NoError(t, err)
		assert.Equal(t, want, got)
		assert.Equal(t, name, got.String())
	}
	for _, name := range []string{"", "zero3"} {
		_, err := logical.ParseStateSharding(name)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), name)
	}
}

// The first State rule that matches a variable by path and size applies. Rules after a matching
// Replicated rule are ignored.
func TestFirstMatchingStateRuleApplies(t *testing.T) {
	small := logical.MatchState("", logical.ShardGradients)
	small.MinElements = 2
	rules := logical.Rules{
		logical.Match("/a/", logical.SplitOverAxes("", "logical")), logical.MatchState("/a/", logical.ShardNothing),
		logical.Match("/(a|whole)/", logical.Replicated()), logical.MatchState("", logical.ShardParameters), small,
	}
	for path, want := range map[string]struct {
		dims  []int
		state logical.StateSharding
		rule  int
	}{
		"/a/w":     {[]int{64, 64}, logical.ShardNothing, 1},
		"/a/b":     {[]int{64}, logical.ShardNothing, 2},
		"/whole/w": {[]int{64, 64}, logical.ShardNothing, 2},
		"/w":       {[]int{64, 64}, logical.ShardParameters, 3},
		"/b":       {[]int{64}, logical.ShardGradients, 4},
		"/scalar":  {nil, logical.ShardNothing, -1},
		// The rules of a variable also apply to its state.
		"/AdamOptimizer/whole/w_1st_moment": {[]int{64, 64}, logical.ShardNothing, 2},
	} {
		state, rule := rules.StateFor(path, want.dims)
		assert.Equal(t, want.state, state, path)
		assert.Equal(t, want.rule, rule, path)
	}
}
