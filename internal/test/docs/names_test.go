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

// What looks like a Go name, in a page or a comment:
var (
	// package.Name or package.Type.Member, where there is a package of that name.
	qualified = regexp.MustCompile(`(?:^|[^\w./])([a-z][a-z0-9]*)\.([A-Z]\w*(?:\.[A-Z]\w*)?)`)
	// Type.Member. What is all in capitals is an enumerator of TensorFlow.
	selected = regexp.MustCompile(`(?:^|[^\w.])([A-Z]\w+)\.([A-Z]\w*)`)
	// A word with a capital inside, such as LogicalDevices.
	camel = regexp.MustCompile(`(?:^|[^\w./])([A-Z][a-z0-9]*[a-z][a-z0-9]*[A-Z]\w*)`)
	// A word by itself between backquotes, such as Run or Run().
	alone = regexp.MustCompile("`\\*?([A-Z]\\w*)(?:\\(\\))?`")
	// The end of a sentence that names the package of the words in it: "(package `errkind`)".
	packaged = regexp.MustCompile("\\(package `([a-z0-9/]+)`\\)")
	// A link of a comment, as go doc reads it.
	link = regexp.MustCompile(`(?:^|[\s("'])\[\*?([A-Za-z]\w*)(?:\.([A-Z]\w*))?(?:\.([A-Z]\w*))?\](?:$|[\s.,;:)"'!?])`)
	// What a piece of code makes itself: a variable's members are not those of a package of its name.
	assigned  = regexp.MustCompile(`(?m)\b(\w+(?:, \w+)*) (?::=|= range)`)
	function  = regexp.MustCompile(`\bfunc (\w+)\(`)
	parameter = regexp.MustCompile(`[(,] ?(\w+) [*\[\]]*[a-z]\w*\.[A-Z]`)
)

// theirs matches the first cell of a row, which has TensorFlow's names in the pages about TensorFlow.
var theirs = regexp.MustCompile(`(?m)^\| [^|]*\|`)

// python is TensorFlow's code.
var python = regexp.MustCompile("(?s)```python\n.*?```")

// foreign are words that look like Go names and are none, besides those of TensorFlow that
// the pages about TensorFlow translate: other names of TensorFlow, of JAX and of Python, units, models and
// algorithms, products and what other systems declare. The last line is of
// variables, which pages do not make, and which have the names of packages. So is a protobuf message, SomethingProto.
var foreign = strings.Fields(`
	TensorFlow TensorBoard MirroredStrategy MirroredVariable SyncOnReadVariable StrategyV1 StrategyExtendedV1 RebatchDataset LegacyRebatchDataset
	DistributedIterator DeviceOrderMode AdamOptimizer LossScaleOptimizer GradientTape UnionResolver SimpleClusterResolver
	SavedModel AttributeError PartitionSpec NumPy PyPI
	MiB GiB KiB NaN NaNs TensorCore TensorCores PowerPC
	DeepSeek StarCoder AdamW ZeRO WaveNet ResNet ResNeXt PointNet MobileNet FlowMatching SplitMix64 ByteLevel BpeTrainer
	JobSet OpenTelemetry MaxText GoNB CrossSliceDimension GetPjrtApi RestartForceExitStatus MemAvailable MemTotal StableHLO CapEff AbortIncompleteMultipartUpload
	xla.OpSharding xla.PrimitiveType xla.OpSharding.Type OpSharding OpShardings PrimitiveType HloModuleProtoWithConfig InitializeLog
	trainer.OnExecCreation corpus.HeldOut corpus.Tokenizer first.Then TiB`)

// wrong are the Go names of a text that nothing declares. of is the package that the text is in, nil
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
			continue // a word, or qualified
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

// identifiers are those of a file's code, such as the functions of other packages that it calls.
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

// misplaced are the bare names of sentences that name a package which declares none of them.
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

// TestEveryGoNameExists looks at the pages and at the comments of all Go files.
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
