package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/compat/contrib"
	v1 "github.com/tpustrategy/tpustrategy/compat/v1"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// A case may use a name of TensorFlow's API in place of its section or in its title. Each name of
// the reference pages belongs to a section, whose runner supports it, is a property, or has a
// reason why this module has no counterpart.

// readBy maps each section to additional names that its runner supports.
var readBy = map[string]string{
	"run_return":    "run experimental_run experimental_run_v2 call_for_each_tower call_for_each_replica",
	"local_results": "experimental_local_results unwrap",
	"context":       "scope get_strategy has_strategy get_replica_context in_cross_replica_context get_tower_context",
	"merge_call":    "merge_run",
	"variable": "variable_created_in_scope read_var get_variable Variable VariableSynchronization " +
		"VariableAggregation",
	"colocate": "colocate_vars_with", "update": "_update",
	"non_slot": "non_slot_devices update_non_slot", "reduce_to": "", "batch_reduce_to": "batch_reduce",
	"broadcast_to": "broadcast", "reduce": "ReduceOp",
	"values_from_function": "experimental_distribute_values_from_function ValueContext", "value_container": "",
	"all_reduce": "", "all_gather": "", "gather": "",
	"numpy_dataset": "experimental_make_numpy_dataset make_numpy_dataset",
	"run_steps": "experimental_run_steps_on_iterator set_last_step_output set_non_tensor_output " +
		"last_step_outputs non_tensor_outputs MultiStepContext",
	"input": "experimental_distribute_dataset distribute_dataset make_dataset_iterator " +
		"make_one_shot_iterator make_initializable_iterator get_next DistributedDataset InputOptions",
	"input_from_function": "experimental_distribute_datasets_from_function distribute_datasets_from_function " +
		"make_input_fn_iterator InputContext",
	"sync_on_read": "tower_local_var_scope", "auto_shard": "AutoShardPolicy",
	"per_replica":      "PerReplica PerDevice DistributedValues Mirrored",
	"replica_context":  "ReplicaContext TowerContext replica_id_in_sync_group tower_id",
	"cluster_resolver": "TPUClusterResolver ClusterResolver TF_CONFIG",
	"mirrored_write":   "assign assign_add assign_sub",
	"base":             "Strategy StrategyExtended DistributionStrategy extended",
}

// none maps each reason to the names in the reference pages that have no counterpart for this
// reason. The documentation page for TensorFlow users has a row for each name.
var none = map[string]string{
	"one annotates nodes, by package logical, under every strategy": "experimental_assign_to_logical_device " +
		"experimental_split_to_logical_devices experimental_replicate_to_logical_devices",
	"a strategy is made by New, whose options have types": "__init__",
	"there are no sessions":                               "configure update_config_proto",
	"calls of TensorFlow 1.9 alone, which package contrib's tests hold": "DistributionStrategy.fetch " +
		"DistributionStrategy.group _distributed_apply",
	"the steps have run when the call returns": "run_op",
	"the compiler schedules collectives":       "CollectiveHints",
	"options are given to NewVariable":         "variable_creator_scope",
	"options and annotations place tensors":    "tf.device",
	"padding is an option of a compiled step":  "RunOptions",
	"training is synchronous":                  "ParameterServerStrategy",
}

// resolved returns the section whose runner supports a name, or the reason why the name has no
// counterpart.
func resolved(name string) (section, reason string) {
	for section, names := range readBy {
		if name == section || slices.Contains(strings.Fields(names), name) {
			return section, ""
		}
	}
	for reason, names := range none {
		if slices.Contains(strings.Fields(names), name) {
			return "", reason
		}
	}
	return "", ""
}

// properties returns the properties of a strategy by TensorFlow's name and by the short name in the
// cases.
func (v *env) properties() map[string]func() any {
	old, e := v1.New(v.s, v1.Options{}).Extended(), v.e
	d := contrib.New(v.s)
	all := map[string]func() any{
		"experimental_between_graph":         func() any { return old.BetweenGraph() },
		"experimental_should_init":           func() any { return old.ShouldInit() },
		"should_checkpoint":                  func() any { return old.ShouldCheckpoint() },
		"should_save_summary":                func() any { return old.ShouldSaveSummary() },
		"experimental_require_static_shapes": func() any { return e.RequireStaticShapes() },
		"worker_devices":                     func() any { return e.WorkerDevices(v.ctx) },
		"parameter_devices":                  func() any { return e.ParameterDevices(v.ctx) },
		"num_hosts":                          func() any { return e.NumHosts() },
		"num_replicas_per_host":              func() any { return e.NumReplicasPerHost() },
		"steps_per_run":                      func() any { return e.StepsPerRun() },
		"num_replicas_in_sync":               func() any { return v.s.NumReplicasInSync() },
		"num_towers":                         func() any { return d.NumTowers() },
		"is_single_tower":                    func() any { return d.IsSingleTower() },
		"worker_device_index":                func() any { return valueOf(d.WorkerDeviceIndex()) },
		"cluster_resolver":                   func() any { return nil },
	}
	for _, name := range []string{"experimental_between_graph", "experimental_should_init",
		"experimental_require_static_shapes"} {
		all[strings.TrimPrefix(name, "experimental_")] = all[name]
	}
	all["num_replicas"] = all["num_replicas_in_sync"]
	return all
}

// valueOf returns the value in a PerDevice of package contrib. It returns other values unchanged.
func valueOf(x any) any {
	if p, ok := x.(*contrib.PerDevice); ok {
		return p.Value()
	}
	return x
}

// calls returns functions to call in a wrong context, by name.
func (v *env) calls(c *caseRun) map[string]func(ctx context.Context) error {
	x := v.perReplica(c, upTo(v.n), "")
	w := v.variable(c, float32(1), strategy.VariableOptions{})
	noop := func(*eager.ReplicaContext, ...any) (any, error) { return nil, nil }
	update := func(*eager.UpdateContext, ...any) (any, error) { return nil, nil }
	run := func(ctx context.Context) error { return ignore(v.e.CallForEachReplica(ctx, noop)) }
	return map[string]func(ctx context.Context) error{
		"scope": func(ctx context.Context) error { return ignore(eager.Of(v.s).Scope(ctx)) },
		"run":   run, "call_for_each_replica": run, "experimental_run_v2": run,
		"reduce":    func(ctx context.Context) error { return ignore(v.e.Reduce(ctx, strategy.Sum, x)) },
		"gather":    func(ctx context.Context) error { return ignore(v.e.Gather(ctx, x, 0)) },
		"reduce_to": func(ctx context.Context) error { return ignore(v.e.ReduceTo(ctx, strategy.Sum, x, eager.To(w))) },
		"batch_reduce_to": func(ctx context.Context) error {
			return ignore(v.e.BatchReduceTo(ctx, strategy.Sum, []eager.ReducePair{{Value: x, To: eager.To(w)}}))
		},
		"broadcast_to": func(ctx context.Context) error { return ignore(v.e.BroadcastTo(ctx, 1.0, eager.To(w))) },
		"update":       func(ctx context.Context) error { return ignore(v.e.Update(ctx, w, update)) },
		"update_non_slot": func(ctx context.Context) error {
			return ignore(v.e.UpdateNonSlot(ctx, v.e.NonSlotDevices(),
				update))
		},
		"colocate_vars_with": func(ctx context.Context) error { return ignore(v.e.ColocateVarsWith(ctx, w)) },
		"assign":             func(ctx context.Context) error { return w.Assign(ctx, 1.0) },
		"assign_add":         func(ctx context.Context) error { return w.AssignAdd(ctx, 1.0) },
		"assign_sub":         func(ctx context.Context) error { return w.AssignSub(ctx, 1.0) },
		"read_value":         func(ctx context.Context) error { return ignore(w.Read(ctx)) },
		"experimental_run_steps_on_iterator": func(ctx context.Context) error {
			return ignore(v.e.RunStepsOnIterator(ctx, func(context.Context, *eager.MultiStepContext, any) error { return nil },
				nil, 1, nil))
		},
		"experimental_make_numpy_dataset": func(ctx context.Context) error {
			//lint:ignore SA1019 the deprecated name is the subject of the case
			return ignore(v1.New(v.s, v1.Options{}).Extended().ExperimentalMakeNumpyDataset(ctx, []float32{1}))
		},
		"experimental_distribute_values_from_function": func(ctx context.Context) error {
			return ignore(v.e.ValuesFromFunction(ctx, func(eager.ValueContext) (any, error) { return float32(1), nil }))
		},
	}
}

// defaultCalls maps each section to the function that its cases call if their title does not name
// one.
var defaultCalls = map[string]string{
	"reduce": "reduce", "gather": "gather", "reduce_to": "reduce_to", "batch_reduce_to": "batch_reduce_to",
	"broadcast_to": "broadcast_to",
	"update":       "update", "non_slot": "update_non_slot", "colocate": "colocate_vars_with", "run_return": "run",
	"context":              "run",
	"values_from_function": "experimental_distribute_values_from_function",
	"run_steps":            "experimental_run_steps_on_iterator",
	"numpy_dataset":        "experimental_make_numpy_dataset", "mirrored_write": "assign", "sync_on_read": "assign",
	"variable":   "assign",
	"merge_call": "scope",
}

// wheres lists the wrong contexts that titles and error messages describe.
var wheres = []struct {
	text *regexp.Regexp
	says string // part of the error message
	in   func(c *caseRun, v *env, call func(context.Context) error) error
}{
	{regexp.MustCompile(`\b(scope of another|another strategy|other strategy|strategy'?s scope of another)`), saysOther,
		func(c *caseRun, v *env, call func(context.Context) error) error {
			other, err := eager.Of(v.other(c)).Scope(v.ctx)
			require.NoError(c, err)
			return call(other)
		}},
	{regexp.MustCompile(`(?:^|[^-\w])(replica (?:context|code|thread)|(inside|in|within) (run|call_for_each_replica)\b)`),
		saysReplica, func(_ *caseRun, v *env, call func(context.Context) error) error {
			return ignore(v.e.CallForEachReplica(v.ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
				return nil,
					call(rc.Context())
			}))
		}},
	{regexp.MustCompile(`\boutside\b`), saysOutside, func(_ *caseRun, v *env,
		call func(context.Context) error) error {
		return call(v.ctx)
	}},
}

// wrongContext reports whether a title describes a call in a wrong context.
func wrongContext(title string) bool {
	for _, where := range wheres {
		if where.text.MatchString(title) {
			return true
		}
	}
	return false
}

// sectionOf returns the section for a name of TensorFlow's API.
func sectionOf(name string) string {
	if sections[name] != nil || hostSections[name] != nil {
		return name
	}
	if section, _ := resolved(name); section != "" {
		return section
	}
	return name
}

var nameText = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*`)

// wordsOf returns the names in a text. For a dotted name it also returns the last part.
func wordsOf(text string) (words []string) {
	for _, name := range nameText.FindAllString(text, -1) {
		words = append(words, name)
		if i := strings.LastIndexByte(name, '.'); i >= 0 {
			words = append(words, name[i+1:])
		}
	}
	return words
}

// byName runs a case whose title no runner supports. It selects the check by the names of
// TensorFlow's API in the section and the title. A case without such a name is unmapped.
func (c *caseRun) byName(g golden, v *env) {
	_, isError := errorOf(g.Outputs)
	words := wordsOf(g.Section + " " + g.Name)
	properties := v.properties()
	for _, word := range words {
		if property, ok := properties[word]; ok && !isError {
			if _, _, one := distributedOf(g.Outputs); !one && len(g.outputs()) > 0 {
				baseCase(c, g, v)
				return
			}
			if strings.HasSuffix(word, "_devices") && v.p > 1 {
				return // other devices than in the case
			}
			c.check(g.Outputs, c.show(property()))
			return
		}
	}
	for _, word := range words {
		if _, reason := resolved(word); reason != "" {
			if word == "configure" {
				require.ErrorIs(c, contrib.New(v.s).Configure(nil), errors.ErrUnsupported)
			}
			require.True(c, hasRow(c, word), "docs/tensorflow-*names.md have no row of %s", word)
			c.skip(reason)
		}
	}
	calls := v.calls(c)
	for _, where := range wheres {
		if !isError || !where.text.MatchString(g.Name) && !says(g.Outputs, where.says) {
			continue
		}
		for _, word := range append(words, defaultCalls[g.Section]) {
			if call, ok := calls[word]; ok {
				err := where.in(c, v, call)
				require.Error(c, err, "%s in %q", word, g.Name)
				c.check(g.Outputs, failed(err))
				return
			}
		}
	}
	c.unmapped("%s %q", g.Section, g.Name)
}

// readPage returns the text of a page of docs.
func readPage(t testing.TB, name string) string {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", name))
	require.NoError(t, err)
	return string(page)
}

// hasRow reports whether a table of TensorFlow's names has a row for name.
func hasRow(t testing.TB, name string) bool {
	tables := readPage(t, "tensorflow-names.md") + readPage(t, "tensorflow-v1-names.md") + readPage(t,
		"tensorflow-other-names.md")
	for line := range strings.Lines(tables) {
		if cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | "); strings.HasPrefix(cell, "`") &&
			slices.Contains(wordsOf(cell), name) {
			return true
		}
	}
	return false
}

// TestEveryNameOfThePagesIsRead checks that each name in the documentation pages belongs to a
// section, is a property, or has a reason that the page contains too.
func TestEveryNameOfThePagesIsRead(t *testing.T) {
	w := newWorld(t)
	w.need(&caseRun{T: t})
	properties := w.envOf(&caseRun{T: t}, "tpu-host-2", 1).properties()
	_, tables, ok := strings.Cut(readPage(t, "tensorflow-names.md"), "\n## tf.distribute.Strategy\n")
	require.True(t, ok)
	tables, _, ok = strings.Cut(tables, "\n## Contexts, values and variables\n")
	require.True(t, ok)
	tables += readPage(t, "tensorflow-v1-names.md")
	seen := map[string]bool{}
	for line := range strings.Lines(tables) {
		cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "`")
		if !ok || !strings.HasPrefix(line, "| `") {
			continue
		}
		words := wordsOf(strings.Fields(cell)[0])
		name := words[len(words)-1]
		seen[name] = true
		section, reason := resolved(name)
		if reason == "" {
			_, reason = resolved(cell)
		}
		assert.True(t, section != "" || reason != "" || properties[name] != nil, "%s: no case could be about it", cell)
		if section != "" {
			assert.True(t, sections[section] != nil || hostSections[section] != nil, "%s: %q runs no cases", cell, section)
		}
	}
	require.Greater(t, len(seen), 50)
	for reason, names := range none {
		for _, name := range strings.Fields(names) {
			assert.True(t, hasRow(t, name) || strings.HasPrefix(name, "DistributionStrategy."), "%s (%s): no row", name, reason)
		}
	}
}

// TestCasesAreReadByTheNamesOfTheAPI checks that cases which use names of TensorFlow's API run and
// can fail.
func TestCasesAreReadByTheNamesOfTheAPI(t *testing.T) {
	const runtime = `{"error":{"type":"RuntimeError"}}`
	planted := func(section, title, inputs, outputs string) string {
		return fmt.Sprintf(`{"section":%q,"name":%q,"strategy":"tpu-host-2","inputs":%s,"outputs":%s}`, section, title,
			inputs, outputs)
	}
	right := []string{
		planted("experimental_local_results", "of both", `{"values":[1.0,2.0]}`, `[1.0,2.0]`),
		planted("experimental_distribute_dataset", "a batch", `{"range":4,"global_batch":4}`,
			`{"steps":[{"PerReplica":[[0,1],[2,3]]}]}`),
		planted("num_replicas_in_sync", "of two", `{}`, `2`),
		planted("context", "Strategy.num_replicas_in_sync", `{}`, `2`),
		planted("experimental_require_static_shapes", "of both", `{}`, `true`),
		planted("base", "flags", `{}`, `{"experimental_between_graph":false,"num_replicas_in_sync":2,"should_init":true}`),
		planted("gather", "strategy.gather inside run()", `{}`, runtime),
		planted("run_return", "experimental_run_v2 in the scope of another strategy", `{}`, runtime),
		planted("values_from_function", "experimental_distribute_values_from_function in a replica context", `{}`, runtime),
		planted("colocate_vars_with", "colocate_vars_with outside", `{}`, runtime),
	}
	wrong := []string{
		planted("unheard_of", "anything", `{}`, `1`), planted("context", "a device of some group", `{}`, `1`),
		planted("context", "unheard of", `{}`, runtime),
		planted("num_replicas_in_sync", "of two", `{}`, `3`), planted("gather", "gather inside run()", `{}`,
			`{"error":{"type":"TypeError"}}`),
		planted("base", "flags", `{}`, `{"experimental_between_graph":false,"experimental_unheard_of":1}`),
		planted("num_replicas_in_sync", "of two", `{"new":1}`, `2`),
		planted("input", "a batch", `{"range":4,"global_batch":4,"new":1}`, `{"steps":[{"PerReplica":[[0,1],[2,3]]}]}`),
		planted("input", "a batch", `{"range":4,"global_batch":4}`, `{"steps":[{"PerReplica":[[0,1],[2,3]]}],"new":1}`),
	}
	left := []string{
		planted("context", "experimental_assign_to_logical_device of MirroredStrategy", `{}`,
			`{"error":{"type":"AttributeError"}}`),
		planted("configure", "of a session", `{}`, `null`), planted("context", "under tf.device", `{}`, `1`),
	}
	w := newWorld(t)
	w.need(&caseRun{T: t})
	var s tally
	runSemantics(t, &s, []byte(`{"cases":[`+strings.Join(append(right, left...), ",")+`]}`), w)
	assert.Equal(t, len(right), s.pass)
	assert.Equal(t, len(left), s.notApplicable)
	for _, text := range wrong {
		var g golden
		decode(t, []byte(text), &g)
		g.raw = []byte(text)
		failed, _ := outcome(func(c *caseRun) {
			c.section, c.name = g.Section, g.Name
			runCase(c, g, w)
		})
		assert.True(t, failed, text)
	}
}
