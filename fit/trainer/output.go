package trainer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/storage"
)

// joinPath joins a file name to a folder or a URL.
func joinPath(dir, name string) string {
	if storage.IsURL(dir) {
		return strings.TrimRight(dir, "/") + "/" + name
	}
	return filepath.Join(dir, name)
}

// createLocalFolder selects the folder of the event files and the curve: Out itself, or a new
// temporary folder if Out is empty or a URL.
func (f *Flags) createLocalFolder() (err error) {
	f.localFolder = f.Out
	if f.Out == "" || storage.IsURL(f.Out) {
		if f.localFolder, err = os.MkdirTemp("", f.flagSet.Name()+"-"); err != nil {
			return &errkind.Fault{Op: "folder of the run", Err: err, Hint: "give one by -out, or set TMPDIR"}
		}
		if f.Out == "" {
			f.Out = f.localFolder
		}
	}
	return nil
}

// maxCopy is the maximum size of a curve in bytes.
const maxCopy = 1 << 30

// copyCurveHooks returns a hook that copies the curve to Out at the end of the run, or no hook if
// Out is a local folder. The hook must follow the hook that draws the curve.
func (f *Flags) copyCurveHooks(curve string) []fit.Hook {
	if f.localFolder == f.Out {
		return nil
	}
	return []fit.Hook{{Name: "copy of the curve", End: func(ctx context.Context, s *fit.State, _ error) error {
		if !s.IsChief() {
			return nil
		}
		data, err := files.ReadFile(filepath.Join(f.localFolder, curve), maxCopy)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		store, err := storage.Open(ctx, f.Out)
		if err != nil {
			return err
		}
		return errors.Join(storage.PutBytes(ctx, store, curve, data, storage.PutOptions{}), store.Close())
	}}}
}
