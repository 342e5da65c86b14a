package conformance

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/conformance/valuecases"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// These tests check that the runner supports all forms of inputs and that unsupported cases do not
// pass.

// outcome runs a case outside of the current test. It reports whether the case failed and the
// reason if it is unmapped.
func outcome(run func(c *caseRun)) (failed bool, unmapped string) {
	c := &caseRun{T: new(testing.T), form: "strategy_semantics"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(c)
	}()
	<-done
	return c.Failed(), c.unmappedWhy
}

func TestPythonExpressions(t *testing.T) {
	for text, want := range map[string]string{
		"id": "2", "id+1": "3", "replica_id + 1.": "3.0", "[id, id+10]": "[2,12]", "(id, 2.)": "[2,2.0]", "3.": "3.0",
		"-id":      "-2",
		"2*(id+1)": "6", "id/2": "1.0", "id // 2": "1", "id % 2": "0", "id**2": "4", "-id**2": "-4", "1e3": "1000.0",
		"[id]*(id+1)": "[2,2,2]", "[1] + [id]": "[1,2]", "tf.constant([1., id])*2": "[2.0,4]",
		"np.array([[id], [1]]) + 1": "[[3],[2]]",
		"tf.range(id+1)":            "[0,1,2]", "list(range(1, 4))": "[1,2,3]", "tf.ones([2, 1])": "[[1.0],[1.0]]",
		"tf.fill([2], id)":                  "[2,2]",
		"tf.constant(id, dtype=tf.float32)": "2.0", "tf.cast(id, tf.float32) + 0.5": "2.5", "float(id)": "2.0",
		"int(2.5)":                   "2",
		"{'a': id, \"b\": [id, 1.]}": `{"a":2,"b":[2,1.0]}`, "1. if id == 0 else 2.": "2.0",
		"tf.constant(3.) made in each replica":                         "3.0",
		"ctx.replica_id_in_sync_group + num_replicas":                  "6",
		"tf.distribute.get_replica_context().replica_id_in_sync_group": "2",
		"id+1 summed first":                                            "3", "id, in each replica": "2",
		"tf.convert_to_tensor([id], name='x')": "[2]",
	} {
		c := &caseRun{T: t, replicas: 4}
		got, err := json.Marshal(python(c, text, 2))
		require.NoError(t, err)
		assert.Equal(t, want, string(got), text)
	}
	for _, text := range []string{"", "id +", "unknown", "tf.linalg.det(id)", "[id", "id id", "'x' + 1", "lambda: id",
		"id & 1"} {
		failed, why := outcome(func(c *caseRun) { python(c, text, 1) })
		assert.True(t, failed, text)
		assert.Contains(t, why, "expression", text)
	}
}

// form is a way to write the replicas' values in a case.
type form struct{ key, value string }

// formsOf returns all forms of the value id*2+1 for n replicas, as numbers or as vectors with two
// elements.
func formsOf(n int, vector bool) []form {
	values := make([]string, n)
	text := "id*2+1."
	for r := range values {
		values[r] = fmt.Sprintf("%d.0", 2*r+1)
		if vector {
			values[r] = fmt.Sprintf("[%d.0, %d.0]", 2*r+1, -r)
		}
	}
	if vector {
		text = "[id*2+1., -id*1.]"
	}
	list, expressions := strings.Join(values, ","), make([]string, n)
	for r := range expressions {
		expressions[r] = fmt.Sprintf("%q", strings.ReplaceAll(text, "id", fmt.Sprintf("(id+%d-id)", r)))
	}
	return []form{
		{"values", "[" + list + "]"}, {"value", fmt.Sprintf("{%q: [%s]}", "PerReplica", list)},
		{"values", fmt.Sprintf("{%q: [%s]}", "PerReplica", list)},
		{"value", fmt.Sprintf("%q", text)}, {"values", fmt.Sprintf("%q", text)},
		{"value", fmt.Sprintf("%q", "tf.constant("+text+") made in each replica")},
		{"values", "[" + strings.Join(expressions, ",") + "]"},
	}
}

// TestFormsOfInputsMeanTheSame checks that all forms of an input have the same result on three
// replicas. If TPUSTRATEGY_FORMS is "all", it uses one to eight replicas.
func TestFormsOfInputsMeanTheSame(t *testing.T) {
	counts := []int{3}
	if os.Getenv("TPUSTRATEGY_FORMS") == "all" {
		counts = []int{1, 2, 3, 4, 8}
	}
	var cases []string
	add := func(section, name, strategy string, f form, more, output string) {
		cases = append(cases, fmt.Sprintf(`{"section":%q,"name":"%s %d","strategy":%q,"inputs":{%q:%s%s},"outputs":%s}`,
			section, name, len(cases), strategy, f.key, f.value, more, output))
	}
	each := func(n int, kind, value string) string {
		return fmt.Sprintf(`{%q:[%s]}`, kind, strings.Join(slices.Repeat([]string{value}, n), ","))
	}
	for _, n := range counts {
		strategy := fmt.Sprintf("tpu-host-%d", n)
		sum, mean, below := n*n, n, -n*(n-1)/2
		for _, f := range formsOf(n, false) {
			add("reduce", "scalars", strategy, f, `,"axis":null`, fmt.Sprintf(`{"SUM":%d.0,"MEAN":%d.0}`, sum, mean))
			add("all_reduce", "scalars", strategy, f, "", fmt.Sprintf(`{"SUM":%s}`, each(n, "PerReplica", fmt.Sprint(sum))))
			var list []string
			for r := range n {
				list = append(list, fmt.Sprint(2*r+1))
			}
			add("local_results", "PerReplica", strategy, f, "", "["+strings.Join(list, ",")+"]")
		}
		var flat []string
		for r := range n {
			flat = append(flat, fmt.Sprintf("%d.0,%d.0", 2*r+1, -r))
		}
		all := "[" + strings.Join(flat, ",") + "]"
		for _, f := range formsOf(n, true) {
			add("reduce", "vectors, axis 0", strategy, f, `,"axis":0`, fmt.Sprintf(`{"SUM":%d.0,"MEAN":%v}`, sum+below,
				float64(sum+below)/float64(2*n)))
			add("gather", "axis 0", strategy, f, "", all)
			add("all_gather", "axis 0", strategy, f, "", each(n, "PerReplica", all))
			nest := form{f.key, fmt.Sprintf(`{"a":%s}`, f.value)}
			if f.key == "values" {
				add("reduce", "nest", fmt.Sprintf("mirrored-%d", n), nest, "", fmt.Sprintf(`{"a":[%d.0,%d.0]}`, sum, below))
			}
		}
	}
	var s tally
	runSemantics(t, &s, []byte(`{"cases":[`+strings.Join(cases, ",")+`]}`), newWorld(t))
	assert.Equal(t, len(cases), s.pass)
	assert.Greater(t, len(cases), 40*len(counts))
}

func TestTheRunnerFailsOnWhatItDoesNotKnow(t *testing.T) {
	for text, want := range map[string]string{
		`{"cases":[{"name":"x"}]}`:                                    "no form that is known",
		`{"cases":[{"section":"reduce","inputs":{},"dtype":"int8"}]}`: `nothing here reads its "dtype"`,
		`{"cases":[],"meshes":{}}`:                                    `"meshes" stands beside the cases`,
		`{"case":[]}`:                                                 "cases",
	} {
		_, err := readFile([]byte(text))
		assert.ErrorContains(t, err, want, text)
	}
	f, err := readFile(
		[]byte(`{"oracle":"x","topologies":{},"cases":[{"kind":"build","error":{}},{"section":"reduce"},{"api":"x","error":{}},{"num_logical_devices":2,"error":{}}]}`))
	require.NoError(t, err, "a file of several forms, of errors alone")
	for _, form := range forms {
		assert.Len(t, f.cases[form], 1, form)
	}
	// A wrong output fails for every form of the input. An unknown input is unmapped.
	w := newWorld(t)
	w.need(&caseRun{T: t})
	for _, c := range []struct{ text, why string }{
		{`{"section":"reduce","name":"wrong","inputs":{"value":"id+1"},"outputs":{"SUM":4.0}}`, ""},
		{`{"section":"gather","name":"wrong","inputs":{"value":"[id]"},"outputs":[1,0]}`, ""},
		{`{"section":"all_gather","name":"wrong","inputs":{"values":"[id]"},"outputs":{"PerReplica":[[0,1],[1,0]]}}`, ""},
		{`{"section":"reduce","name":"few","inputs":{"values":[1.0]},"outputs":{"SUM":1.0}}`, "1 values for 2 replicas"},
		{`{"section":"reduce","name":"new","inputs":{"values":[1.0,2.0],"weights":[1]},"outputs":{"SUM":3.0}}`,
			`input "weights"`},
		{`{"section":"gather","name":"new","inputs":{"value":"tf.random.normal([id])"},"outputs":[]}`, "expression"},
		{`{"section":"reduce","name":"new output","inputs":{"values":[1.0,2.0]},"outputs":{"SUM":3.0,"MEDIAN":1.5}}`,
			`output "MEDIAN"`},
	} {
		var g golden
		decode(t, []byte(c.text), &g)
		failed, why := outcome(func(x *caseRun) {
			x.section, x.name = g.Section, g.Name
			g.Strategy = "tpu-host-2"
			runCase(x, g, w)
		})
		assert.True(t, failed, c.text)
		if c.why != "" {
			assert.Contains(t, why, c.why, c.text)
		}
	}
}

// TestMeshesAreComparedByMeaning checks that meshes and subgroups are compared by the placement of
// their tiles. A sharding in another notation passes, but a sharding with another placement fails.
func TestMeshesAreComparedByMeaning(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	shapes := [][]int{{2, 2}, {2, 2, 2}, {1, 4, 2}, {4, 1}, {2, 3, 1}, {8}}
	written := 0
	for range 200 {
		mesh := shapes[r.IntN(len(shapes))]
		size := 1
		for _, n := range mesh {
			size *= n
		}
		devices := r.Perm(size)
		axes := r.Perm(len(mesh))
		mapping, manual := make([]int, 1+r.IntN(2)), []int(nil)
		for i := range mapping {
			mapping[i] = -1
			if len(axes) > 0 && r.IntN(2) == 0 {
				mapping[i], axes = axes[0], axes[1:]
			}
		}
		if len(axes) > 0 && r.IntN(3) == 0 {
			manual = axes[:1]
		}
		op, err := sharding.OpMeshSplit(mesh, devices, mapping, manual)
		require.NoError(t, err)
		canonical := op.Canonical()
		if !canonical.Equal(op) {
			written++
		}
		input, err := json.Marshal(map[string]any{"fn": "mesh_split_sharding", "device_mesh": nested(mesh, devices),
			"tensor_split_dims_mapping": mapping, "manual_mesh_dims": manual})
		require.NoError(t, err)
		run := func(t *testing.T, wire sharding.OpSharding) {
			x := hex.EncodeToString(wire.MarshalProto())
			text := fmt.Sprintf(
				`{"cases":[{"name":"x","api":"xla_sharding.Sharding","input":%s,"output":{"serialized_hex":%q,"hlo_sharding":%q,"hlo_roundtrip_hex":%q}}]}`,
				input, x, wire.String(), x)
			cases, err := valuecases.Shardings([]byte(text))
			require.NoError(t, err)
			cases[0].Run(&valuecases.T{T: t, Unmapped: t.Fatalf})
		}
		run(t, op)
		run(t, canonical)
		slices.Reverse(devices)
		other, err := sharding.OpMeshSplit(mesh, devices, mapping, manual)
		require.NoError(t, err)
		if other.Canonical().Equal(canonical) {
			continue
		}
		failed, _ := outcome(func(c *caseRun) { run(c.T, other) })
		assert.True(t, failed, "%v instead of %v", other, op)
	}
	assert.Greater(t, written, 20, "meshes that have another form")
}

// nested returns nested lists with the given dimensions.
func nested(dims, elements []int) any {
	if len(dims) == 0 {
		return elements[0]
	}
	list, size := make([]any, dims[0]), len(elements)/dims[0]
	for i := range list {
		list[i] = nested(dims[1:], elements[i*size:(i+1)*size])
	}
	return list
}
