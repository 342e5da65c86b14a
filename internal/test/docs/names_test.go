package docs_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These expressions match Go names in pages and comments.
var (
	// qualified matches package.Name and package.Type.Member.
	qualified = regexp.MustCompile(`(?:^|[^\w./])([a-z][a-z0-9]*)\.([A-Z]\w*(?:\.[A-Z]\w*)?)`)
	// selected matches Type.Member. Members in capitals are TensorFlow enumerators.
	selected = regexp.MustCompile(`(?:^|[^\w.])([A-Z]\w+)\.([A-Z]\w*)`)
	// camel matches words with an inner capital letter, such as LogicalDevices.
	camel = regexp.MustCompile(`(?:^|[^\w./])([A-Z][a-z0-9]*[a-z][a-z0-9]*[A-Z]\w*)`)
	// alone matches a word in backquotes, such as Run or Run().
	alone = regexp.MustCompile("`\\*?([A-Z]\\w*)(?:\\(\\))?`")
	// packaged matches the end of a sentence that specifies the package of its names: "(package
	// `errkind`)".
	packaged = regexp.MustCompile("\\(package `([a-z0-9/]+)`\\)")
	// link matches a doc link in a comment.
	link = regexp.MustCompile(`(?:^|[\s("'])\[\*?([A-Za-z]\w*)(?:\.([A-Z]\w*))?(?:\.([A-Z]\w*))?\](?:$|[\s.,;:)"'!?])`)
	// These expressions match names that a block of code declares itself. Such a name hides a
	// package with the same name.
	assigned  = regexp.MustCompile(`(?m)\b(\w+(?:, \w+)*) (?::=|= range)`)
	function  = regexp.MustCompile(`\bfunc (\w+)\(`)
	parameter = regexp.MustCompile(`[(,] ?(\w+) [*\[\]]*[a-z]\w*\.[A-Z]`)
)

// theirs matches the first cell of a table row, which contains TensorFlow names.
var theirs = regexp.MustCompile(`(?m)^\| [^|]*\|`)

// python matches TensorFlow code.
var python = regexp.MustCompile("(?s)```python\n.*?```")

// foreign contains words that look like Go names but are not: names of TensorFlow, JAX, Python and
// other systems, units, models, algorithms and products. The last line contains variables whose
// name is also a package name. Names of protobuf messages, such as SomethingProto, are allowed too.
var foreign = strings.Fields(`
	TensorFlow TensorBoard MirroredStrategy MirroredVariable SyncOnReadVariable StrategyV1 StrategyExtendedV1 RebatchDataset LegacyRebatchDataset
	DistributedIterator DeviceOrderMode AdamOptimizer LossScaleOptimizer GradientTape UnionResolver SimpleClusterResolver
	SavedModel AttributeError PartitionSpec NumPy PyPI JavaScript
	MiB GiB KiB NaN NaNs TensorCore TensorCores PowerPC
	DeepSeek StarCoder AdamW ZeRO WaveNet ResNet ResNeXt PointNet MobileNet FlowMatching SplitMix64 ByteLevel BpeTrainer
	JobSet OpenTelemetry MaxText GoNB CrossSliceDimension GetPjrtApi RestartForceExitStatus MemAvailable MemTotal StableHLO CapEff AbortIncompleteMultipartUpload
	xla.OpSharding xla.PrimitiveType xla.OpSharding.Type OpSharding OpShardings PrimitiveType HloModuleProtoWithConfig InitializeLog
	trainer.OnExecCreation corpus.HeldOut corpus.Tokenizer first.Then TiB`)

// wrong returns the Go names in a text that are not declared. of is the package of the text, or nil
// for a page.
func (x *index) wrong(text string, of *pkg) (names []string) {
	add := func(ok bool, name string) {
		if !ok && !x.foreign[name] && !strings.HasSuffix(name, "Proto") && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	made := map[string]bool{}
	for _, m := range assigned.FindAllStringSubmatch(text, -1) {
		for _, name := range strings.Split(m[1], ", ") {
			made[name] = true
		}
	}
	for _, m := range function.FindAllStringSubmatch(text, -1) {
		made[m[1]] = true
	}
	for _, m := range parameter.FindAllStringSubmatch(text, -1) {
		made[m[1]] = true
	}
	for _, m := range qualified.FindAllStringSubmatch(text, -1) {
		if !made[m[1]] && x.packages(m[1]) != nil {
			add(x.has(m[1]+"."+m[2]), m[1]+"."+m[2])
		}
	}
	for _, m := range selected.FindAllStringSubmatch(text, -1) {
		if m[2] == strings.ToUpper(m[2]) && len(m[2]) > 1 {
			continue
		}
		known, has := x.hasMember(m[1], m[2])
		add(has || !known && x.words[m[1]] && x.words[m[2]], m[1]+"."+m[2])
	}
	for _, m := range camel.FindAllStringSubmatch(text, -1) {
		add(x.words[m[1]] || made[m[1]], m[1])
	}
	if of == nil {
		for _, m := range alone.FindAllStringSubmatch(text, -1) {
			add(m[1] == strings.ToUpper(m[1]) || x.words[m[1]], m[1])
		}
		return names
	}
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		if !ast.IsExported(m[1]) && (m[2] == "" || x.packages(m[1]) != nil) {
			continue // a lowercase word, or a qualified name
		}
		name := strings.TrimRight(m[1]+"."+m[2]+"."+m[3], ".")
		add(of.objects[m[1]] && m[3] == "" && (m[2] == "" || x.member(of, m[1], m[2], 5)), name)
	}
	return names
}

func TestWrongNamesAreFound(t *testing.T) {
	x := indexed(t)
	require.Greater(t, len(x.sources), 1000)
	own := x.packages("feed")[0]
	for text, want := range map[string][]string{
		"`strategy.Nothing` and strategy.TPUStrategy.Reduce":                 {"strategy.Nothing"},
		"`strategy.TPUStrategy.Iterate` is gone":                             {"strategy.TPUStrategy.Iterate"},
		"an EagerContext, or `TPUStrategy.Run`":                              {"TPUStrategy.Run", "EagerContext"},
		"`Replicass` of `Options`, `Run()` and `Scatters()`":                 {"Replicass", "Scatters"},
		"```go\nstep, err := train.Now(s)\nstep.Run(layers.Dense)\n```":      {"train.Now"},
		"```go\nfunc f(train *strategy.TPUStrategy) { train.Now() }\n```":    nil,
		"ReduceOp.SUM of `input.Options.Policy`, graph.Node.Shape, io.EOF":   nil,
		"graph.NoSuchOp and http.NoSuchServer, example.org/strategy.Nothing": {"graph.NoSuchOp", "http.NoSuchServer"},
		"v1.Extended.BatchReduceTo is embedded; Options.Replicas":            nil,
	} {
		assert.Equal(t, want, x.wrong(text, nil), text)
	}
	for text, want := range map[string][]string{
		"[Iterate] and [*Feed.Next], [strategy.New]":           nil,
		"[Options.Nothing], [Nothing] or ([*Feed.Nothing])":    {"Options.Nothing", "Feed.Nothing", "Nothing"},
		"as [strategy.Nothing] says, [nopackage.Nothing] too.": {"strategy.Nothing", "nopackage.Nothing"},
		"a tensor [Rows, 4] or x[Rows]; a MirroredStrategy":    nil,
	} {
		assert.ElementsMatch(t, want, x.wrong(text, own), text)
	}
}

// identifiers returns all identifiers of a file.
func identifiers(f *ast.File) map[string]bool {
	all := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			all[id.Name] = true
		}
		return true
	})
	return all
}

// misplaced returns the names in sentences that specify a package, if the package declares none of
// the names in the sentence.
func (x *index) misplaced(page string) (names []string) {
	for _, m := range packaged.FindAllStringSubmatchIndex(page, -1) {
		sentence := page[:m[0]]
		start := max(strings.LastIndex(sentence, ". "), strings.LastIndex(sentence, ".** "), strings.LastIndex(sentence,
			"\n\n"))
		sentence = sentence[max(start, 0):]
		name := page[m[2]:m[3]]
		name = name[strings.LastIndexByte(name, '/')+1:]
		words := alone.FindAllStringSubmatch(sentence, -1)
		declared := slices.ContainsFunc(words, func(w []string) bool { return x.has(name + "." + w[1]) })
		if len(words) > 0 && x.packages(name) != nil && !declared {
			names = append(names, name+"."+words[0][1])
		}
	}
	return names
}

func TestNamesAreThoseOfTheirPackage(t *testing.T) {
	x := indexed(t)
	for text, want := range map[string][]string{
		"One. `Of` returns the kind of every error (package `errkind`).":     {"errkind.Of"},
		"Two. `KindOf` returns the kind of every error (package `errkind`).": nil,
		"Three (package `errkind`) and `KindOf`, which is in `input`.":       nil,
		"**Four.** `Iterate` of `Feed` copies batches (package `strategy`)":  {"strategy.Iterate"},
	} {
		assert.Equal(t, want, x.misplaced(text), text)
	}
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	for _, name := range append(pages, "../README.md", "../CONTRIBUTING.md") {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		assert.Empty(t, x.misplaced(string(data)), name)
	}
}

// TestEveryGoNameExists checks the names in pages and in the comments of all Go files.
func TestEveryGoNameExists(t *testing.T) {
	x := indexed(t)
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	for _, pattern := range []string{"../examples/*/README.md", "../README.md", "../CONTRIBUTING.md", "*/README.md"} {
		more, err := filepath.Glob(pattern)
		require.NoError(t, err)
		pages = append(pages, more...)
	}
	require.Greater(t, len(pages), 20)
	for _, name := range pages {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		page := string(data)
		if strings.Contains(name, "tensorflow") {
			page = theirs.ReplaceAllString(python.ReplaceAllString(page, ""), "")
		}
		assert.Empty(t, x.wrong(page, nil), name)
	}
	for _, s := range x.sources {
		if s.name == filepath.Join("..", "internal", "test", "docs", "names_test.go") {
			continue
		}
		for _, g := range s.file.Comments {
			names := x.wrong(g.Text(), s.of)
			if len(names) > 0 {
				own := identifiers(s.file)
				names = slices.DeleteFunc(names, func(name string) bool { return own[name] })
			}
			assert.Empty(t, names, s.name)
		}
	}
}
