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

// Optimized is an environment variable. If it is 1, tests compile for the CPU with the default
// optimizations. Otherwise they disable optimizations, because most of the cost of a test is
// compilation. This reduces the compilation time by about four fifths.
const Optimized = "TPUSTRATEGY_OPTIMIZED"

var plain = map[string]any{
	"xla_backend_optimization_level":       0,
	"xla_cpu_parallel_codegen_split_count": 1,
	"xla_cpu_use_fusion_emitters":          false,
}

func optimized() bool { return os.Getenv(Optimized) == "1" }

// plainCode compiles without slow optimizations. The overrides of a program take precedence.
type plainCode struct{}

func (plainCode) Compile(ctx context.Context, client *pjrt.Client, program pjrt.Program,
	opts pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	overrides := maps.Clone(plain)
	maps.Copy(overrides, opts.Overrides)
	opts.Overrides = overrides
	return client.Compile(ctx, program, opts)
}

// PlainCode disables optimizations in this process and its child processes through the environment
// variable XLA_FLAGS. It does not change XLA_FLAGS if it is set. PlainCode is for tests of
// commands, which do not use [Programs]. Call it before a plugin is loaded.
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

// Programs returns the cache of compiled programs of the package under test. It is stored in the
// user's cache folder. Programs without optimizations have a separate cache. The key of an entry
// contains the program's text, its options and the build of the plugin.
func Programs(t testing.TB) *cache.Cache {
	t.Helper()
	programs, err := openPrograms()
	if err != nil {
		t.Fatalf("plugintest: %v", err)
	}
	return programs
}

// maxPrograms limits the size in bytes of a package's cache. It exceeds the size of the largest
// cache.
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
