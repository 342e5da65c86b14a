package status

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/files"
)

// place is where records are kept, by their file names.
type place interface {
	put(ctx context.Context, name string, data []byte) error
	// get returns at most maxRecord bytes; an error that matches fs.ErrNotExist if there is none.
	get(ctx context.Context, name string) ([]byte, error)
	names(ctx context.Context) ([]string, error)
	remove(ctx context.Context, name string) error
	close() error
}

// maxRecord bounds what is read of a record.
const maxRecord = 1 << 20

// block is what a record's file is filled up to: writing over the file then takes no new room.
const block = 4096

// folder is a place in the local file system. Nothing is synced: a record that is lost with the
// machine's power is of no use after it.
type folder struct{ path string }

func (f folder) put(ctx context.Context, name string, data []byte) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if rest := len(data) % block; rest > 0 {
		data = append(data, strings.Repeat(" ", block-rest)...)
	}
	path := filepath.Join(f.path, name)
	err := f.replace(path, data)
	if err == nil {
		return nil
	}
	if over(path, data) == nil {
		return nil // on a full disk the file's own blocks are there
	}
	return err
}

// replace writes beside the file and renames.
func (f folder) replace(path string, data []byte) error {
	if err := os.MkdirAll(f.path, 0o755); err != nil {
		return err
	}
	beside := path + ".new"
	file, err := files.CreateBeside(beside, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(beside, path)
	}
	if err != nil {
		_ = os.Remove(beside)
	}
	return err
}

// over writes over a file that is there, in its own blocks.
func over(path string, data []byte) error {
	f, err := files.OpenOwn(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	return errors.Join(err, f.Close())
}

func (f folder) get(_ context.Context, name string) ([]byte, error) {
	return files.Read(filepath.Join(f.path, name), maxRecord)
}

func (f folder) names(context.Context) ([]string, error) {
	entries, err := os.ReadDir(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all, err
}

func (f folder) remove(_ context.Context, name string) error {
	err := os.Remove(filepath.Join(f.path, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (folder) close() error { return nil }
