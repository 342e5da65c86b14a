package docs_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// folders are the packages that the page names.
var folders = map[string]string{
	"strategy": "strategy", "train": "strategy/train", "stepfile": "strategy/stepfile", "eager": "strategy/eager", "feed": "strategy/feed", "contrib": "compat/contrib", "v1": "compat/v1", "input": "input",
	"logical": "logical", "precision": "precision", "sharding": "sharding", "tpu": "tpu", "system": "tpu/system", "module": "lowering/module",
	"clusterresolver": "cluster_resolver", "conformance": "internal/conformance",
}

// pkg is what a package declares.
type pkg struct {
	objects map[string]bool            // functions, types, constants and variables
	members map[string]map[string]bool // methods and fields by type
	embeds  map[string][]string        // embedded types by type, with their package if it is another
	tests   map[string]bool
}

func parse(t *testing.T, folder string) *pkg {
	t.Helper()
	p := &pkg{objects: map[string]bool{}, members: map[string]map[string]bool{}, embeds: map[string][]string{}, tests: map[string]bool{}}
	files, err := filepath.Glob(filepath.Join("..", folder, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files, folder)
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range f.Decls {
			p.declare(d, strings.HasSuffix(name, "_test.go"))
		}
	}
	return p
}

func (p *pkg) declare(d ast.Decl, test bool) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		switch {
		case test:
			p.tests[d.Name.Name] = d.Recv == nil
		case d.Recv == nil:
			p.objects[d.Name.Name] = true
		default:
			p.member(typeName(d.Recv.List[0].Type), d.Name.Name)
		}
	case *ast.GenDecl:
		if test {
			return
		}
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					p.objects[n.Name] = true
				}
			case *ast.TypeSpec:
				p.objects[s.Name.Name] = true
				if st, ok := s.Type.(*ast.StructType); ok {
					for _, f := range st.Fields.List {
						for _, n := range f.Names {
							p.member(s.Name.Name, n.Name)
						}
						if len(f.Names) == 0 {
							p.embeds[s.Name.Name] = append(p.embeds[s.Name.Name], typeName(f.Type))
						}
					}
				}
			}
		}
	}
}

func (p *pkg) member(of, name string) {
	if p.members[of] == nil {
		p.members[of] = map[string]bool{}
	}
	p.members[of][name] = true
}

// typeName is T of T, *T, T[P] and other.T, the latter with its package.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.SelectorExpr:
		return typeName(e.X) + "." + e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// code are the packages that the page names, by their name in it.
type code map[string]*pkg

// has reports whether package.Symbol or package.Type.Member is declared and exported.
func (c code) has(name string) bool {
	parts := strings.Split(name, ".")
	p := c[parts[0]]
	if p == nil || len(parts) < 2 || !ast.IsExported(parts[1]) || !p.objects[parts[1]] {
		return false
	}
	return len(parts) == 2 || len(parts) == 3 && ast.IsExported(parts[2]) && c.member(parts[0], parts[1], parts[2])
}

func (c code) member(in, of, name string) bool {
	if c[in].members[of][name] {
		return true
	}
	for _, e := range c[in].embeds[of] {
		where, what := in, e
		if other, selected, ok := strings.Cut(e, "."); ok {
			where, what = other, selected
		}
		if c[where] != nil && c.member(where, what, name) {
			return true
		}
	}
	return false
}

// cases reports whether recorded cases of the conformance runner exist: a file, or a
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

// rows are the rows of the page's tables of symbols: four cells each.
func rows(t *testing.T) [][]string {
	page, err := os.ReadFile("from-tensorflow.md")
	require.NoError(t, err)
	var all [][]string
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "| `") || len(cells) != 4 {
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
	c := code{}
	for name, folder := range folders {
		c[name] = parse(t, folder)
	}
	require.True(t, c.has("strategy.TPUStrategy.Reduce"))
	require.True(t, c.has("v1.Extended.BatchReduceTo"), "embedded")
	for _, absent := range []string{"strategy", "strategy.TPUStrategy.reduce", "strategy.TPUStrategy.Nothing", "strategy.Nothing", "nothing.TPUStrategy"} {
		require.False(t, c.has(absent))
	}
	for _, row := range rows(t) {
		ours, tests := names(row[1]), names(row[2])
		if len(ours) == 0 {
			assert.Equal(t, "none", row[1], row[0])
			assert.NotEmpty(t, row[3], "%s: what to do instead", row[0])
			continue
		}
		assert.NotEmpty(t, tests, "%s: no test", row[0])
		for _, name := range ours {
			assert.True(t, c.has(name), "%s: %s is not declared", row[0], name)
		}
		for _, name := range tests {
			test, section, isCase := strings.Cut(name, "/")
			in, function, _ := strings.Cut(test, ".")
			require.Contains(t, c, in, name)
			assert.True(t, c[in].tests[function], "%s: %s is not a test", row[0], test)
			if isCase {
				assert.True(t, cases(t, section), "%s: no recorded cases %s", row[0], section)
			}
		}
	}
}

// The symbols of the pages, by class.
var pages = map[string]string{
	"Strategy.": "cluster_resolver extended num_replicas_in_sync experimental_assign_to_logical_device experimental_distribute_dataset " +
		"experimental_distribute_datasets_from_function experimental_distribute_values_from_function experimental_local_results " +
		"experimental_make_numpy_dataset experimental_replicate_to_logical_devices experimental_split_to_logical_devices reduce run scope",
	"StrategyExtended.": "experimental_require_static_shapes parameter_devices worker_devices batch_reduce_to colocate_vars_with " +
		"non_slot_devices reduce_to update update_non_slot value_container variable_created_in_scope",
	"v1.StrategyExtended.": "experimental_between_graph experimental_should_init should_checkpoint should_save_summary broadcast_to " +
		"call_for_each_replica experimental_make_numpy_dataset experimental_run_steps_on_iterator read_var",
	"DistributionStrategy.": "is_single_tower num_towers parameter_devices worker_device_index worker_devices __init__ batch_reduce " +
		"broadcast call_for_each_tower colocate_vars_with configure distribute_dataset fetch group non_slot_devices reduce scope " +
		"tower_local_var_scope unwrap update update_non_slot",
	"": "Strategy StrategyExtended v1.StrategyExtended DistributionStrategy TowerContext.tower_id TowerContext.merge_call " +
		"ReplicaContext.merge_call ReplicaContext.all_reduce ReplicaContext.replica_id_in_sync_group ReduceOp.SUM ReduceOp.MEAN " +
		"VariableAggregation.NONE VariableAggregation.SUM VariableAggregation.MEAN VariableAggregation.ONLY_FIRST_REPLICA " +
		"VariableSynchronization.ON_READ AutoShardPolicy.AUTO AutoShardPolicy.OFF tf.distribute.InputContext tf.distribute.InputOptions " +
		"tf.distribute.RunOptions tf.distribute.ValueContext tf.distribute.DistributedDataset tf.distribute.DistributedValues " +
		"tf.distribute.get_strategy tf.distribute.get_replica_context tf.distribute.in_cross_replica_context tf.get_tower_context " +
		"tf.distribute.experimental.CollectiveHints MultiStepContext.set_last_step_output MultiStepContext.set_non_tensor_output " +
		"MultiStepContext.last_step_outputs MultiStepContext.non_tensor_outputs MultiStepContext.run_op PerDevice Mirrored PerReplica",
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

func TestTheTrainingLoopOfTheTensorFlowPageIsTheTestedOne(t *testing.T) {
	page, err := os.ReadFile("from-tensorflow.md")
	require.NoError(t, err)
	_, block, ok := strings.Cut(string(page), "```go\n")
	require.True(t, ok)
	block, _, ok = strings.Cut(block, "```")
	require.True(t, ok)

	file := filepath.Join("..", "strategy", "example_pages_test.go")
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, source, parser.ParseComments)
	require.NoError(t, err)
	i := slices.IndexFunc(f.Decls, func(d ast.Decl) bool {
		fn, ok := d.(*ast.FuncDecl)
		return ok && fn.Name.Name == "trainEpochs"
	})
	require.GreaterOrEqual(t, i, 0)
	fn := f.Decls[i].(*ast.FuncDecl)
	require.Equal(t, string(source[set.Position(fn.Doc.Pos()).Offset:set.Position(fn.End()).Offset])+"\n", block)
}
