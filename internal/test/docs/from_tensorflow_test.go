package docs_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cases reports whether recorded cases of the conformance runner exist. The name is a file or a
// file/section.
func cases(t *testing.T, name string) bool {
	file, section, _ := strings.Cut(name, "/")
	data, err := os.ReadFile(filepath.Join("..", "testdata", "goldens", file+".json"))
	if err != nil {
		return false
	}
	if section == "" {
		return true
	}
	var list struct {
		Cases []struct {
			Section string `json:"section"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		require.NoError(t, json.Unmarshal(data, &list.Cases))
	}
	for _, c := range list.Cases {
		if c.Section == section {
			return true
		}
	}
	return false
}

// tensorFlowPages contains the pages with tables of TensorFlow names.
var tensorFlowPages = []string{"tensorflow-names.md", "tensorflow-v1-names.md", "tensorflow-other-names.md"}

// rows returns the rows of the tables of TensorFlow names. Each row has three cells.
func rows(t *testing.T) [][]string {
	var text strings.Builder
	for _, name := range tensorFlowPages {
		page, err := os.ReadFile(name)
		require.NoError(t, err)
		text.Write(page)
	}
	var all [][]string
	for line := range strings.Lines(text.String()) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "| `") || len(cells) != 3 {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		all = append(all, cells)
	}
	require.Greater(t, len(all), 100)
	return all
}

var quoted = regexp.MustCompile("`([^`]+)`")

func names(cell string) (all []string) {
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		all = append(all, m[1])
	}
	return all
}

func TestEveryNameOfTheTensorFlowPageExists(t *testing.T) {
	c := indexed(t)
	require.True(t, c.has("strategy.TPUStrategy.Reduce"))
	require.True(t, c.has("v1.Extended.BatchReduceTo"), "embedded")
	for _, absent := range []string{"strategy", "strategy.TPUStrategy.reduce", "strategy.TPUStrategy.Nothing",
		"strategy.Nothing", "nothing.TPUStrategy"} {
		require.False(t, c.has(absent))
	}
	tests := tested(t)
	for _, row := range rows(t) {
		ours, theirs := names(row[1]), strings.ReplaceAll(row[0], "`", "")
		if len(ours) == 0 {
			assert.Equal(t, "none", row[1], theirs)
			assert.NotEmpty(t, row[2], "%s: what to do instead", theirs)
			assert.Empty(t, tests[theirs])
			continue
		}
		assert.NotEmpty(t, tests[theirs], "%s: no test in testdata/from-tensorflow.txt", theirs)
		for _, name := range ours {
			assert.True(t, c.has(name), "%s: %s is not declared", theirs, name)
		}
		for _, name := range tests[theirs] {
			test, section, isCase := strings.Cut(name, "/")
			in, function, _ := strings.Cut(test, ".")
			assert.True(t, slices.ContainsFunc(c.packages(in), func(p *pkg) bool { return p.tests[function] }),
				"%s: %s is not a test", theirs, test)
			if isCase {
				assert.True(t, cases(t, section), "%s: no recorded cases %s", theirs, section)
			}
		}
		delete(tests, theirs)
	}
	assert.Empty(t, tests, "the page has no such row")
}

// tested returns the tests of each table row by the row's first cell. In
// testdata/from-tensorflow.txt, each cell is followed by one indented line per test. The last part
// of a conformance test's name is a section of the cases that were recorded from TensorFlow.
func tested(t *testing.T) map[string][]string {
	data, err := os.ReadFile(filepath.Join("testdata", "from-tensorflow.txt"))
	require.NoError(t, err)
	all, row := map[string][]string{}, ""
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, "\t") {
			require.NotContains(t, all, line)
			row = line
			all[row] = nil
			continue
		}
		all[row] = append(all[row], strings.TrimSpace(line))
	}
	return all
}

// pages contains the TensorFlow symbols of each class.
var pages = map[string]string{
	"Strategy.": "cluster_resolver extended num_replicas_in_sync experimental_assign_to_logical_device " +
		"experimental_distribute_dataset " +
		"experimental_distribute_datasets_from_function experimental_distribute_values_from_function " +
		"experimental_local_results " +
		"experimental_make_numpy_dataset experimental_replicate_to_logical_devices experimental_split_to_logical_devices " +
		"reduce run scope",
	"StrategyExtended.": "experimental_require_static_shapes parameter_devices worker_devices batch_reduce_to " +
		"colocate_vars_with " +
		"non_slot_devices reduce_to update update_non_slot value_container variable_created_in_scope",
	"v1.StrategyExtended.": "experimental_between_graph experimental_should_init should_checkpoint should_save_summary " +
		"broadcast_to " +
		"call_for_each_replica experimental_make_numpy_dataset experimental_run_steps_on_iterator read_var",
	"DistributionStrategy.": "is_single_tower num_towers parameter_devices worker_device_index worker_devices __init__ " +
		"batch_reduce " +
		"broadcast call_for_each_tower colocate_vars_with configure distribute_dataset fetch group non_slot_devices " +
		"reduce scope " +
		"tower_local_var_scope unwrap update update_non_slot",
	"": "Strategy StrategyExtended v1.StrategyExtended DistributionStrategy TowerContext.tower_id " +
		"TowerContext.merge_call " +
		"ReplicaContext.merge_call ReplicaContext.all_reduce ReplicaContext.replica_id_in_sync_group ReduceOp.SUM " +
		"ReduceOp.MEAN " +
		"VariableAggregation.NONE VariableAggregation.SUM VariableAggregation.MEAN VariableAggregation.ONLY_FIRST_REPLICA " +
		"VariableSynchronization.ON_READ AutoShardPolicy.AUTO AutoShardPolicy.OFF tf.distribute.InputContext " +
		"tf.distribute.InputOptions " +
		"tf.distribute.RunOptions tf.distribute.ValueContext tf.distribute.DistributedDataset " +
		"tf.distribute.DistributedValues " +
		"tf.distribute.get_strategy tf.distribute.get_replica_context tf.distribute.in_cross_replica_context " +
		"tf.get_tower_context " +
		"tf.distribute.experimental.CollectiveHints MultiStepContext.set_last_step_output " +
		"MultiStepContext.set_non_tensor_output " +
		"MultiStepContext.last_step_outputs MultiStepContext.non_tensor_outputs MultiStepContext.run_op PerDevice " +
		"Mirrored PerReplica",
}

func TestTheTensorFlowPageHasEverySymbol(t *testing.T) {
	seen := map[string]int{}
	for _, row := range rows(t) {
		for _, name := range names(row[0]) {
			seen[name]++
		}
	}
	for name, n := range seen {
		assert.Equal(t, 1, n, "%s has several rows", name)
	}
	for class, list := range pages {
		for _, name := range strings.Fields(list) {
			assert.Contains(t, seen, class+name)
		}
	}
}
