package logical

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/ml/train"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/sharding"
)

func grid(t *testing.T, replicas, devices int) sharding.Mesh {
	mesh, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: replicas}, sharding.Axis{Name: "logical",
		Size: devices})
	require.NoError(t, err)
	return mesh
}

func TestRulesPlaceVariables(t *testing.T) {
	mesh := grid(t, 4, 2)
	rules := Rules{
		Match(`/norm/`, Replicated()),
		Match(`/dense/weights$`, SplitOverAxes("", "logical")),
		Match(`/table$`, SplitOverAxes("replica,logical", "")),
		{Pattern: regexp.MustCompile(""), Largest: []string{"replica"}, MinElements: 64},
	}
	require.NoError(t, rules.Validate(mesh))
	for _, c := range []struct {
		path  string
		dims  []int
		spec  string
		whole string
		why   string
	}{
		{"/a/dense/weights", []int{8, 4}, "-,logical", "", `rule 1`},
		{"/a/dense/weights", []int{16, 4}, "replica,logical", "", `rule 1, rule 3`},
		{"/AdamOptimizer/a/dense/weights_1st_moment", []int{8, 4}, "-,logical", "", `rule 1, as state of /a/dense/weights`},
		{"/acc_grads/a/dense/weights", []int{8, 4}, "-,logical", "", `rule 1, as state of /a/dense/weights`},
		{"/a/dense/weights", []int{8, 3}, "-,-", "rule 1: dimension 1 of size 3 is not divisible by logical=2", `rule 1`},
		{"/a/dense/weights", []int{8}, "-", "", "no rule (rule 1: it splits 2 dimensions, but the variable has 1)"},
		{"/table", []int{16, 8}, "replica+logical,-", "", `rule 2`},
		{"/table", []int{12, 8}, "replica,-", "rule 2: dimension 0 of size 12 is not divisible by replica=4, logical=2",
			`rule 2, rule 3`},
		{"/norm/table", []int{16, 8}, "-,-", "", `rule 0`},
		{"/other", []int{7, 11}, "-,-", "rule 3: no dimension of [7 11] is divisible by replica=4", "no rule"},
		{"/other", []int{3, 8, 8}, "-,replica,-", "", `rule 3`},
		{"/step", nil, "()", "", "no rule"},
		{"/empty", []int{0, 8}, "-,-", "", "no rule"},
	} {
		p, err := rules.SpecFor(mesh, c.path, c.dims)
		require.NoError(t, err)
		assert.Equal(t, c.spec, p.Spec.String(), "%s %v", c.path, c.dims)
		assert.Equal(t, c.whole, p.UnsplitReason, "%s %v", c.path, c.dims)
		assert.Equal(t, c.why, p.RuleText, "%s %v", c.path, c.dims)
		assert.NoError(t, p.Spec.Validate(mesh, c.dims))
	}
	// Axes of size 1 are omitted from the spec.
	p, err := rules.SpecFor(grid(t, 1, 1), "/a/dense/weights", []int{8, 3})
	require.NoError(t, err)
	assert.Equal(t, "-,-", p.Spec.String())
	assert.Empty(t, p.UnsplitReason)
}

func TestRequiredRuleFailsIfItCannotSplit(t *testing.T) {
	rule := Match(`/w$`, SplitOverAxes("", "logical"))
	rule.Required = true
	_, err := Rules{rule}.SpecFor(grid(t, 4, 2), "/a/w", []int{2, 3})
	var ruleErr *RuleError
	require.ErrorAs(t, err, &ruleErr)
	assert.EqualError(t, err, `logical: rules: rule 0 ("/w$" to -,logical): variable "/a/w" of shape [2 3]: `+
		`dimension 1 of size 3 is not divisible by logical=2; change the rule, pad the dimension, or remove required`)
	assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	_, err = Rules{rule}.SpecFor(grid(t, 4, 2), "/a/w", []int{2})
	assert.ErrorAs(t, err, &ruleErr)
}

func TestValidateRejectsInvalidRules(t *testing.T) {
	for want, rule := range map[string]Rule{
		`dimension 1 is split over axis "modle", which the replica does not have; use one of replica=4,logical=2`: Match("w",
			SplitOverAxes("", "modle")),
		`axis "logical" splits dimension 0 and dimension 1; use each axis once`: Match("w",
			SplitOverAxes("logical", "logical")),
		`dimension 0 is split over axis "logical" twice; use each axis once`: Match("w",
			SplitOverAxes("logical,logical", "")),
		`dimension 0 has an empty axis name`: Match("w",
			SplitOverAxes("logical,", "")),
		`it has no pattern`: {Annotation: SplitOverAxes("logical")},
		`it has an annotation and axes for the largest dimension`: {Pattern: regexp.MustCompile("w"),
			Annotation: SplitOverAxes("logical"), Largest: []string{"replica"}},
		`it is optional and required`: {Pattern: regexp.MustCompile("w"),
			Annotation: SplitOverAxes("logical"), Optional: true, Required: true},
		`MinElements is -1; use 0 or more`: {Pattern: regexp.MustCompile("w"),
			Largest: []string{"replica"}, MinElements: -1},
		`MinElements is used only with Largest and State`: {Pattern: regexp.MustCompile("w"),
			Annotation: SplitOverAxes("logical"), MinElements: 3},
		`it splits a variable and shards its state`: {Pattern: regexp.MustCompile("w"),
			Annotation: SplitOverAxes("logical"), State: ShardOptimizer},
		`StateSharding(9) is undefined; use ShardNothing`: MatchState(
			"w", 9),
	} {
		err := Rules{rule}.Validate(grid(t, 4, 2))
		var ruleErr *RuleError
		require.ErrorAs(t, err, &ruleErr, want)
		assert.Contains(t, err.Error(), want)
	}
}

func TestRulesInJSON(t *testing.T) {
	const rest = `,"required":true},{"variable":"/norm","replicate":true,"optional":true},{"variable":"","largest":"replica+logical","smallest":64},{"variable":"","state":"gradients","smallest":64}]}`
	text := `{"rules":[{"variable":"/w$","split":"-,replica+logical"` + rest
	// The older form has lists of entries, and commas between axes.
	before := `{"rules":[{"variable":"/w$","split":["","replica,logical"]` + strings.ReplaceAll(rest, "+", ",")
	path := filepath.Join(t.TempDir(), "rules.json")
	for _, text := range []string{text, before} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		rules, err := ReadRules(path)
		require.NoError(t, err)
		require.Len(t, rules, 4)
		assert.True(t, rules[0].Required && rules[1].Optional)
		assert.True(t, rules.UsesAxis("replica") && rules.UsesAxis("logical") && !rules.UsesAxis("model"))
		assert.True(t, rules[0].Annotation.Equal(SplitOverAxes("", "replica,logical")))
		assert.Equal(t, []string{"replica", "logical"}, rules[2].Largest)
		again, err := json.Marshal(rules)
		require.NoError(t, err)
		assert.JSONEq(t, `{"rules":[{"variable":"/w$","split":"-,replica+logical"`+rest, string(again))
	}

	for _, c := range []struct{ text, want string }{
		{``, "the JSON is invalid"},
		{`[]`, "the JSON is invalid"},
		{`{}`, "there are no rules"},
		{`{"rules": []}`, "there are no rules"},
		{`{"rules": [{"variable": "w", "split": [""]}]} x`, "text after the JSON value"},
		{`{"rules": [{"variabel": "w"}]}`, `unknown field "variabel"`},
		{`{"rules": [{"variable": "w", "variable": "v", "split": []}]}`, `the key "variable" is duplicate`},
		{`{"rules": [{"split": [""]}]}`, `rule 0: "variable" is missing`},
		{`{"rules": [{"variable": "(", "split": [""]}]}`, `invalid regular expression "("`},
		{`{"rules": [{"variable": "w"}]}`, `found 0 of "split", "largest", "state" and "replicate" for "w"`},
		{`{"rules": [{"variable": "w", "split": [""], "largest": "replica"}]}`,
			`found 2 of "split", "largest", "state" and "replicate" for "w"`},
		{`{"rules": [{"variable": "w", "largest": ""}]}`, `found 1 of "split", "largest", "state" and "replicate" for "w"`},
		{`{"rules": [{"variable": "w", "split": 3}]}`,
			`rule 0: invalid split: expected axis names, not 3; write the axes of each dimension, as in "-,logical"`},
		{`{"rules": [{"variable": "w", "split": "1,2"}]}`, "expected axis names, not 1,2"},
		{`{"rules": [{"variable": "w", "split": "-,"}]}`,
			`expected the name of an axis, or - for a dimension that is not split at offset 2`},
		{`{"rules": [{"variable": "w", "split": ["", 3]}]}`, "entry 1 is not a string: 3"},
		{`{"rules": [{"variable": "w", "state": "all"}]}`,
			`unknown name "all"; use one of none, optimizer, gradients, parameters`},
		{`{"rules": [{"variable": "w", "split": [""], "state": "optimizer"}]}`,
			`found 2 of "split", "largest", "state" and "replicate" for "w"`},
		{`{"rules": ` + strings.Repeat("[", 20000), "the JSON is invalid"},
	} {
		_, err := ParseRules([]byte(c.text))
		var ruleErr *RuleError
		require.ErrorAs(t, err, &ruleErr, c.text)
		assert.Contains(t, err.Error(), c.want, c.text)
	}
	_, err := ReadRules(filepath.Join(t.TempDir(), "none.json"))
	assert.ErrorContains(t, err, "the built-in sets: fsdp, megatron, zero1, zero2")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func FuzzParseRules(f *testing.F) {
	f.Add([]byte(`{"rules":[{"variable":"/w$","split":["","replica,logical"]}]}`))
	f.Add([]byte(`{"rules":[{"variable":"","largest":"replica"}], "rules": 1}`))
	f.Add([]byte(`{"rules":[{"variable":"","state":"parameters"},{"variable":"w","largest":"replica"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		rules, err := ParseRules(data)
		if err != nil {
			var ruleErr *RuleError
			require.ErrorAs(t, err, &ruleErr)
			return
		}
		text, err := json.Marshal(rules)
		require.NoError(t, err)
		again, err := ParseRules(text)
		require.NoError(t, err, string(text))
		for i, r := range rules {
			require.True(t, r.Annotation.Equal(again[i].Annotation), string(text))
		}
		mesh := grid(t, 4, 2)
		if rules.Validate(mesh) != nil {
			return
		}
		for _, dims := range [][]int{nil, {8}, {8, 16}, {3, 5, 64}} {
			p, err := rules.SpecFor(mesh, "/AdamOptimizer/w_1st_moment", dims)
			if err == nil {
				require.NoError(t, p.Spec.Validate(mesh, dims))
			}
		}
	})
}

func TestBuiltinRules(t *testing.T) {
	mesh := grid(t, 4, 2)
	both, err := BuiltinRules("megatron+fsdp", mesh)
	require.NoError(t, err)
	require.NoError(t, both.Validate(mesh))
	for _, c := range []struct {
		path string
		dims []int
		want string
	}{
		{"/transformer/layer_0/attn/MultiHeadAttention/query/dense/weights", []int{64, 64}, "replica,logical"},
		{"/transformer/layer_0/attn/MultiHeadAttention/query/dense/biases", []int{64}, "logical"},
		{"/transformer/layer_0/attn/MultiHeadAttention/output/dense/weights", []int{64, 64}, "logical,replica"},
		{"/transformer/layer_0/attn/MultiHeadAttention/output/dense/biases", []int{64}, "-"},
		{"/transformer/output/dense/biases", []int{64}, "logical"},
		{"/transformer/layer_0/ff1/dense/weights", []int{64, 256}, "replica,logical"},
		{"/transformer/layer_0/ff2/dense/weights", []int{256, 64}, "logical,replica"},
		{"/AdamOptimizer/transformer/layer_0/ff2/dense/weights_2nd_moment", []int{256, 64}, "logical,replica"},
		{"/transformer/output/dense/weights", []int{64, 1000}, "replica,logical"},
		{"/transformer/token_embed/embeddings", []int{1000, 64}, "logical,replica"},
		{"/transformer/token_embed/embeddings", []int{1001, 64}, "-,logical"},
		{"/model/fnn_hidden_layer_0/weights", []int{64, 64}, "replica,logical"},
		{"/model/fnn_hidden_layer_11/weights", []int{64, 64}, "logical,replica"},
		{"/model/fnn_output_layer/weights", []int{64, 64}, "replica,-"},
		{"/transformer/layer_0/norm1/layer_normalization/gain", []int{64}, "-"},
	} {
		p, err := both.SpecFor(mesh, c.path, c.dims)
		require.NoError(t, err)
		assert.Equal(t, c.want, p.Spec.String(), c.path)
	}
	for _, c := range []struct {
		set   string
		paths [3]string
	}{
		{"zero1", [3]string{"-,-", "-,-", "replica,-"}},
		{"zero2", [3]string{"-,-", "replica,-", "replica,-"}},
		{"fsdp", [3]string{"replica,-", "replica,-", "replica,-"}},
	} {
		rules, err := BuiltinRules(c.set, mesh)
		require.NoError(t, err)
		for i, path := range []string{"/a/weights", "/acc_grads/a/weights", "/AdamOptimizer/a/weights_1st_moment"} {
			p, err := rules.SpecFor(mesh, path, []int{64, 64})
			require.NoError(t, err)
			assert.Equal(t, c.paths[i], p.Spec.String(), "%s %s", c.set, path)
			p, err = append(Rules{Match("/a/", Replicated())}, rules...).SpecFor(mesh, path, []int{64, 64})
			require.NoError(t, err)
			assert.Equal(t, "-,-", p.Spec.String(), "%s %s", c.set, path)
		}
	}

	named, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: 2}, sharding.Axis{Name: "model", Size: 2},
		sharding.Axis{Name: "sequence", Size: 2})
	require.NoError(t, err)
	rules, err := BuiltinRules("megatron", named)
	require.NoError(t, err)
	assert.True(t, rules.UsesAxis("model") && !rules.UsesAxis("sequence"))
	_, err = BuiltinRules("megatorn", mesh)
	assert.EqualError(t, err, `logical: rules megatorn: there is no built-in set "megatorn"; use one of fsdp, `+
		`megatron, zero1, zero2, or a file whose name ends in .json`)
}

func TestStateOfRecognizesGoMLXNames(t *testing.T) {
	assert.Equal(t, train.AccumulatedGradientsScope, gradientScope)
	for path, want := range map[string]string{
		"/AdamOptimizer/a/w_1st_moment": "/a/w", "/mine/w_2nd_moment": "/w", "/acc_grads/a/w": "/a/w", "/acc_grads/w": "/w",
		"/a/w": "", "/w_1st_moment": "", "arg0": "", "/": "", "//": "", "/AdamOptimizer/_1st_moment": "",
		"/AdamOptimizer/step": "",
	} {
		assert.Equal(t, want, OwnerOfState(path, nil), path)
	}
}
