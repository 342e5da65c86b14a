package plugintest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
)

// Optimized is the environment variable that, set to 1, has tests compile for the CPU as users do.
// Else they ask for plain code in one piece, of XLA's older emitters: a test runs a program a few
// times, on few numbers, and nine tenths of its cost are the compiler's, of which this saves four
// fifths.
const Optimized = "TPUSTRATEGY_OPTIMIZED"

var plain = map[string]any{
	"xla_backend_optimization_level":       0,
	"xla_cpu_parallel_codegen_split_count": 1,
	"xla_cpu_use_fusion_emitters":          false,
}

func optimized() bool { return os.Getenv(Optimized) == "1" }

// plainCode compiles without what takes long. What a program's own options say counts more.
type plainCode struct{}

func (plainCode) Compile(ctx context.Context, client *pjrt.Client, program pjrt.Program,
	opts pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	overrides := maps.Clone(plain)
	maps.Copy(overrides, opts.Overrides)
	opts.Overrides = overrides
	return client.Compile(ctx, program, opts)
}

// PlainCode has this process, and those that it starts, compile plain code by the variable that XLA
// reads, which does not count where it is set already. It is for the tests of commands, whose programs
// are none of [Programs]: call it before a plugin is loaded.
func PlainCode() {
	const flags = "XLA_FLAGS"
	if _, set := os.LookupEnv(flags); set || optimized() {
		return
	}
	var all []string
	for name, value := range plain {
		all = append(all, fmt.Sprintf("--%s=%v", name, value))
	}
	slices.Sort(all)
	os.Setenv(flags, strings.Join(all, " "))
}

// Programs returns the compiled programs of the package under test. They are kept in the user's
// folder of caches, as Go's own are, and those of plain code apart from the others. An entry depends
// on the program's text, its options and the plugin's build, so that a change of any of them compiles
// it.
func Programs(t testing.TB) *cache.Cache {
	t.Helper()
	programs, err := openPrograms()
	if err != nil {
		t.Fatalf("plugintest: %v", err)
	}
	return programs
}

// maxPrograms is how many bytes of programs a package keeps: more than the largest one has.
const maxPrograms = 512 << 20

var openPrograms = sync.OnceValues(func() (*cache.Cache, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "tpustrategy", "test-programs")
	o := cache.Options{MaxBytes: maxPrograms, SigningKeyFile: filepath.Join(dir, "key"), Compiler: plainCode{}}
	of := filepath.Join(dir, "plain")
	if optimized() {
		o.Compiler, of = nil, filepath.Join(dir, "optimized")
	}
	if err := os.MkdirAll(of, 0o700); err != nil {
		return nil, err
	}
	return cache.Open(filepath.Join(of, strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")), o)
})
