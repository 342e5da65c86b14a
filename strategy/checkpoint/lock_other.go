//go:build !unix

package checkpoint

import (
	"os"
	"path/filepath"

	"github.com/tpustrategy/tpustrategy/internal/files"
)

// lock locks nothing where the system has no lock that ends with the process.
func lock(dir string) (*os.File, error) {
	f, err := files.OpenOwn(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, doing("lock", "", err)
	}
	return f, nil
}
