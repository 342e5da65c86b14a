package zero

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/compat/contrib"
	v1 "github.com/tpustrategy/tpustrategy/compat/v1"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/profile"
	"github.com/tpustrategy/tpustrategy/fit/progress"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/gomlx"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/input/idx"
	"github.com/tpustrategy/tpustrategy/lm/generate"
	"github.com/tpustrategy/tpustrategy/lm/text"
	"github.com/tpustrategy/tpustrategy/lm/weights"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/keyvalue"
	"github.com/tpustrategy/tpustrategy/report/curve"
	"github.com/tpustrategy/tpustrategy/report/events"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/nest"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// ending contains the names of methods that release the resources of a value.
var ending = []string{"Close", "Abort", "Stop", "Shutdown"}

// closers contains all public types with a method in ending, by package and name.
var closers = map[string]any{
	"compat/contrib.Iterator":        new(contrib.Iterator),
	"compat/contrib.Variable":        new(contrib.Variable),
	"compat/v1.InputIterator":        new(v1.InputIterator),
	"gomlx.Backend":                  new(gomlx.Backend),
	"input.Steps":                    new(input.Steps),
	"pjrt.Buffer":                    new(pjrt.Buffer),
	"pjrt.Client":                    new(pjrt.Client),
	"pjrt.Executable":                new(pjrt.Executable),
	"pjrt.LoadedExecutable":          new(pjrt.LoadedExecutable),
	"pjrt.Profile":                   new(pjrt.Profile),
	"pjrt.Registration":              new(pjrt.Registration),
	"pjrt.Topology":                  new(pjrt.Topology),
	"pjrt/keyvalue.Server":           new(keyvalue.Server),
	"report/events.Writer":           new(events.Writer),
	"fit/progress.Line":              new(progress.Line),
	"strategy.Binding":               new(strategy.Binding),
	"strategy.Function":              new(strategy.Function),
	"strategy.TPUStrategy":           new(strategy.TPUStrategy),
	"strategy.Variable":              new(strategy.Variable),
	"strategy/checkpoint.Checkpoint": new(checkpoint.Checkpoint),
	"strategy/checkpoint.Manager":    new(checkpoint.Manager),
	"strategy/feed.Feed":             new(feed.Feed),
	"strategy/feed.Iterator":         new(feed.Iterator),
	"fit.State":                      new(fit.State),
	"lm/generate.Generator":          new(generate.Generator),
	"fit/interrupt.Agreement":        new(interrupt.Agreement),
	"strategy/nest.Function":         new(nest.Function),
	"fit/profile.Recorder":           new(profile.Recorder),
	"strategy/train.Evaluation":      new(train.Evaluation),
	"strategy/train.Step":            new(train.Step),
	"fit/watchdog.RecordStore":       new(watchdog.RecordStore),
	"fit/watchdog.Watchdog":          new(watchdog.Watchdog),
	"tpu/system.Slice":               new(system.Slice),
	"tpu/system.System":              new(system.System),
	"lm/weights.File":                new(weights.File),
}

// A zero value or nil pointer can be closed, because a deferred Close may follow a failed constructor.
func TestZeroValuesAndNilPointersClose(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(closers)) {
		zero := reflect.ValueOf(closers[name])
		for kind, v := range map[string]reflect.Value{"zero value": zero, "nil pointer": reflect.Zero(zero.Type())} {
			for _, method := range ending {
				m := v.MethodByName(method)
				if !m.IsValid() {
					continue
				}
				var in []reflect.Value
				for i := range m.Type().NumIn() {
					arg := reflect.Zero(m.Type().In(i))
					if m.Type().In(i) == reflect.TypeFor[context.Context]() {
						arg = reflect.ValueOf(t.Context())
					}
					in = append(in, arg)
				}
				for range 2 { // a second call must not panic
					assert.NotPanics(t, func() { m.Call(in) }, "%s: %s of a %s", name, method, kind)
				}
			}
		}
	}
}

// TestNilReadersAreErrors checks that functions return an error for a nil argument.
func TestNilReadersAreErrors(t *testing.T) {
	for name, read := range map[string]func() error{
		"text.ReadBPE":  func() error { _, err := text.ReadBPE(nil, ""); return err },
		"idx.Read":      func() error { _, err := idx.Read(nil); return err },
		"curve.ReadCSV": func() error { _, err := curve.ReadCSV(nil); return err },
		"stepfile.Load": func() error {
			_, err := stepfile.Load(t.Context(), new(strategy.TPUStrategy), nil, nil)
			return err
		},
		"stepfile.LoadTrain": func() error {
			_, err := stepfile.LoadTrain(t.Context(), nil, strings.NewReader(""), nil)
			return err
		},
		"stepfile.LoadEvaluation": func() error {
			_, err := stepfile.LoadEvaluation(t.Context(), new(strategy.TPUStrategy), nil, nil)
			return err
		},
	} {
		assert.NotPanics(t, func() {
			err := read()
			assert.ErrorContains(t, err, "nil", name)
			assert.Equal(t, errkind.ValueError, errkind.KindOf(err), name)
		}, name)
	}
}

// The closers table must contain every public type of the module with a method in ending.
func TestEveryCloserIsInTheTable(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	require.FileExists(t, filepath.Join(root, "go.mod"))
	found := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			_, module := os.Stat(filepath.Join(path, "go.mod"))
			if path != root && (module == nil || slices.Contains([]string{"internal", "testdata", "cmd", "examples", ".git"},
				name) || strings.HasPrefix(name, "x_")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil || !slices.Contains(ending, f.Name.Name) {
				continue
			}
			receiver := f.Recv.List[0].Type
			if star, ok := receiver.(*ast.StarExpr); ok {
				receiver = star.X
			}
			if id, ok := receiver.(*ast.Ident); ok && id.IsExported() {
				found[filepath.ToSlash(folder)+"."+id.Name] = true
			}
		}
		return nil
	}))
	assert.Equal(t, slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(closers)))
}
