package trainer

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/strategy/fit"
)

// below is the path or URL of what lies in a folder or below a URL.
func below(place, name string) string {
	if storage.IsURL(place) {
		return strings.TrimRight(place, "/") + "/" + name
	}
	return filepath.Join(place, name)
}

// here makes the folder of the files that are written line by line, which a store of objects does
// not take: Out itself, or, where that is a URL, a new one on this machine, whose files the hooks of
// [copies] copy there.
func (f *Flags) here() (err error) {
	f.local = f.Out
	if f.Out == "" || storage.IsURL(f.Out) {
		if f.local, err = os.MkdirTemp("", f.set.Name()+"-"); err != nil {
			return &errkind.Fault{Op: "folder of the run", Err: err, Hint: "give one by -out, or set TMPDIR"}
		}
		if f.Out == "" {
			f.Out = f.local
		}
	}
	return nil
}

// maxCopy bounds a table that is fetched from Out.
const maxCopy = 1 << 30

// copies returns the hook that fetches the table of an earlier life of the run, which goes before the
// hook that writes it, and the one that puts the files into Out, which goes behind all that write.
// Where Out is a folder there is nothing to copy.
func (f *Flags) copies(table, curve string) (fetch, put []fit.Hook) {
	if f.local == f.Out {
		return nil, nil
	}
	with := func(ctx context.Context, do func(store storage.Store) error) error {
		store, err := storage.Open(ctx, f.Out)
		if err != nil {
			return err
		}
		return errors.Join(do(store), store.Close())
	}
	fetch = []fit.Hook{{Name: "fetch the table", Begin: func(ctx context.Context, s *fit.State) error {
		if !s.Resumes() || !s.First() {
			return nil
		}
		return with(ctx, func(store storage.Store) error {
			data, err := storage.ReadAll(ctx, store, table, maxCopy)
			if errors.Is(err, storage.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			return files.Replace(filepath.Join(f.local, table), func(w io.Writer) error { _, err := w.Write(data); return err })
		})
	}}}
	put = []fit.Hook{{Name: "copies of tables and curves", End: func(ctx context.Context, s *fit.State, _ error) error {
		if !s.First() {
			return nil
		}
		return with(ctx, func(store storage.Store) error {
			for _, name := range []string{table, curve} {
				data, err := files.Read(filepath.Join(f.local, name), maxCopy)
				if errors.Is(err, os.ErrNotExist) {
					continue
				}
				if err == nil {
					err = storage.PutBytes(ctx, store, name, data, storage.PutOptions{})
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}}}
	return fetch, put
}
