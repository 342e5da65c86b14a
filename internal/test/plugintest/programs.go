package plugintest

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tpustrategy/tpustrategy/pjrt/cache"
)

// Programs returns the compiled programs of the package under test. They are kept in the user's
// folder of caches, as Go's own are: nine tenths of a test's time are the compilation of programs
// that the run before it had, too. An entry depends on the program's text, its options and the
// plugin's build, so that a change of any of them compiles it.
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
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return cache.Open(filepath.Join(dir, strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")),
		cache.Options{MaxBytes: maxPrograms, KeyFile: filepath.Join(dir, "key")})
})
