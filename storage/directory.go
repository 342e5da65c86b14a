package storage

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/files"
)

// Directory returns a store in a folder of the local file system, which it creates if necessary.
// Several machines may share the folder on a network file system that supports hard links or
// exclusive renames. The path may contain symbolic links. Symbolic links within the folder are not
// followed.
func Directory(path string) (Store, error) {
	if err := checkLocalPath(path); err != nil {
		return nil, err
	}
	d := &directory{root: filepath.Clean(path)}
	if err := d.makeFolder(d.root); err != nil {
		return nil, WrapError("open", "", d, err)
	}
	info, err := os.Stat(d.root)
	if err == nil && !info.IsDir() {
		err = &files.Error{Path: d.root, Reason: files.NotRegular, Found: "no folder",
			Hint: "name a folder, or a path that does not exist"}
	}
	if err != nil {
		return nil, WrapError("open", "", d, err)
	}
	return d, nil
}

type directory struct {
	root     string
	onChange func(change, path, oldPath string) // for tests that simulate the disk; may be nil
}

// notifyChange calls onChange if it is set. oldPath is the old name of a file that was renamed or
// linked.
func (d *directory) notifyChange(change, path, oldPath string) {
	if d.onChange != nil {
		d.onChange(change, path, oldPath)
	}
}

// tempPrefix is the prefix of the names of temporary files.
const tempPrefix = ".put-"

func (d *directory) String() string { return d.root }
func (d *directory) Close() error   { return nil }

// makeFolder creates a folder and its missing parents, and syncs the changes to disk.
func (d *directory) makeFolder(path string) error {
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(path)
	if err := d.makeFolder(parent); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d.notifyChange("mkdir", path, "")
	return d.syncFolder(parent)
}

func (d *directory) syncFolder(path string) error {
	f, err := os.Open(path)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err == nil {
		d.notifyChange("sync", path, "")
	}
	return err
}

// objectPath returns the path of an object. A symbolic link in place of a folder within the store
// is an error, because it may lead out of the store or to another object.
func (d *directory) objectPath(ctx context.Context, name string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", WrapError("find", name, d, err)
	}
	path := d.root
	elements := strings.Split(name, "/")
	for _, element := range elements[:len(elements)-1] {
		path = filepath.Join(path, element)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			err = files.CheckRegular(path, info)
		}
		if err != nil {
			return "", WrapError("find", name, d, err)
		}
	}
	return filepath.Join(d.root, filepath.FromSlash(name)), nil
}

func (d *directory) Put(ctx context.Context, name string, opts PutOptions, write func(io.Writer) error) error {
	path, err := d.objectPath(ctx, name)
	if err != nil {
		return err
	}
	if opts.IfAbsent { // avoids writing the object for nothing
		if _, err := os.Lstat(path); err == nil {
			return WrapError("put", name, d, ErrExists)
		}
	}
	err = d.putFile(ctx, path, opts, write)
	if err != nil && opts.Volatile && !opts.IfAbsent && ctx.Err() == nil && overwrite(path, write) == nil {
		return nil // written to the existing file
	}
	return WrapError("put", name, d, err)
}

func overwrite(path string, write func(io.Writer) error) error {
	f, err := files.OpenFileNoFollow(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	err = write(f)
	if at, failed := f.Seek(0, io.SeekCurrent); err == nil && failed == nil {
		err = f.Truncate(at)
	}
	return errors.Join(err, f.Close())
}

// createTemp creates a temporary file and its folder. It retries because another process may remove
// the folder while it is empty.
func (d *directory) createTemp(folder, path string, size int64) (w *fileWriter, err error) {
	for range maxAttempts {
		if err = d.makeFolder(folder); err == nil {
			w, err = createFile(path, size)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return w, err
}

// maxAttempts limits how often an operation is tried again because another process removed a folder
// or a file at the same time.
const maxAttempts = 100

func (d *directory) putFile(ctx context.Context, path string, opts PutOptions, write func(io.Writer) error) error {
	folder := filepath.Dir(path)
	temp := filepath.Join(folder, tempPrefix+rand.Text())
	w, err := d.createTemp(folder, temp, opts.Size)
	if err != nil {
		d.removeEmptyFolders(folder)
		return err
	}
	d.notifyChange("create", temp, "")
	moved := false
	defer func() {
		if !moved {
			_ = os.Remove(temp)
			d.notifyChange("remove", temp, "")
			d.removeEmptyFolders(folder)
		}
	}()
	err = write(&contextWriter{ctx, w})
	if err == nil && !opts.Volatile {
		err = w.Sync()
		d.notifyChange("sync file", temp, "")
	}
	if closed := w.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	if opts.IfAbsent {
		moved, err = moveExclusive(temp, path)
	} else {
		err = os.Rename(temp, path)
		moved = err == nil
	}
	if err != nil {
		return err
	}
	d.notifyChange(map[bool]string{true: "rename", false: "link"}[moved], path, temp)
	if opts.Volatile {
		return nil
	}
	return d.syncFolder(folder)
}

// moveExclusive moves temp to path. It fails if path exists. If moved is false, path is a hard link
// to temp, which the caller must remove.
func moveExclusive(temp, path string) (moved bool, err error) {
	switch err := os.Link(temp, path); {
	case err == nil:
		return false, nil // the caller's deferred function removes temp
	case errors.Is(err, fs.ErrExist):
		return false, ErrExists
	}
	// The file system may not support hard links.
	switch err := renameExclusive(temp, path); {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrExist):
		return false, ErrExists
	default:
		return false, err
	}
}

type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

func (w *contextWriter) Write(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.w.Write(p)
}

func (d *directory) Open(ctx context.Context, name string) (Object, error) {
	path, err := d.objectPath(ctx, name)
	if err != nil {
		return nil, err
	}
	f, info, err := files.OpenNoFollow(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotExist
	}
	if err != nil {
		return nil, WrapError("open", name, d, err)
	}
	return &fileObject{f, info.Size(), name, d}, nil
}

type fileObject struct {
	*os.File
	size  int64
	name  string
	store Store
}

func (f *fileObject) Size() int64 { return f.size }

func (f *fileObject) ReadAt(ctx context.Context, p []byte, offset int64) error {
	err := ctx.Err()
	if err == nil {
		_, err = f.File.ReadAt(p, offset)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return WrapError("read", f.name, f.store, err)
}

// List lists the objects. It repeats the walk if files were removed during the walk. Such a walk
// can miss both a removed object and an object that was put before to replace it.
func (d *directory) List(ctx context.Context, prefix string) (all []Info, err error) {
	for range maxAttempts {
		all = nil
		var missed bool
		missed, err = d.walk(ctx, prefix, func(name string, e fs.DirEntry) error {
			if e.IsDir() || strings.HasPrefix(e.Name(), ".") {
				return nil
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			if info.Mode().IsRegular() {
				all = append(all, Info{Name: name, Size: info.Size(), Modified: info.ModTime()})
			}
			return nil
		})
		if !missed || err != nil {
			break
		}
	}
	slices.SortFunc(all, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return all, WrapError("list", prefix, d, err)
}

// walk calls visit for the files and folders whose names begin with prefix. If prefix is the name
// of a folder and a slash, walk also visits that folder. It omits files and folders that are
// removed during the walk; missed reports whether there were any.
func (d *directory) walk(ctx context.Context, prefix string, visit func(name string,
	e fs.DirEntry) error) (missed bool, err error) {
	start := d.root
	if i := strings.LastIndexByte(prefix, '/'); i > 0 {
		if start, err = d.objectPath(ctx, prefix[:i]); err != nil {
			return false, err
		}
	}
	err = filepath.WalkDir(start, func(path string, e fs.DirEntry, err error) error {
		if cause := ctx.Err(); cause != nil {
			return cause
		}
		if path == d.root {
			return err
		}
		relative, failed := filepath.Rel(d.root, path)
		if failed != nil {
			return failed
		}
		name := filepath.ToSlash(relative)
		if errors.Is(err, fs.ErrNotExist) {
			missed = missed || path != start
			return nil
		}
		within := strings.HasPrefix(name, prefix) || e.IsDir() && name+"/" == prefix
		switch {
		case err != nil:
			return err
		case e.IsDir() && (strings.HasPrefix(e.Name(), ".") || !within && !strings.HasPrefix(prefix, name+"/")):
			return fs.SkipDir
		case !within:
			return nil
		}
		err = visit(name, e)
		if errors.Is(err, fs.ErrNotExist) {
			missed = true
			return nil
		}
		return err
	})
	return missed, err
}

func (d *directory) Remove(ctx context.Context, name string) error {
	path, err := d.objectPath(ctx, name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return WrapError("remove", name, d, err)
	}
	d.notifyChange("remove", path, "")
	if err := d.syncFolder(filepath.Dir(path)); err != nil && !errors.Is(err,
		fs.ErrNotExist) { // others may have removed the folder
		return WrapError("remove", name, d, err)
	}
	d.removeEmptyFolders(filepath.Dir(path))
	return nil
}

// removeEmptyFolders removes folder and its parents within the store, up to the first folder that
// is not empty.
func (d *directory) removeEmptyFolders(folder string) {
	for folder != d.root && strings.HasPrefix(folder, d.root) && os.Remove(folder) == nil {
		d.notifyChange("remove", folder, "")
		folder = filepath.Dir(folder)
	}
}

// Sweep removes temporary files and empty folders. If it removes the new folder of a concurrent
// Put, that Put creates the folder again.
func (d *directory) Sweep(ctx context.Context, prefix string, isLive func(string) bool) error {
	var folders []string
	_, err := d.walk(ctx, prefix, func(name string, e fs.DirEntry) error {
		switch {
		case e.IsDir():
			folders = append(folders, name)
			return nil
		case !strings.HasPrefix(e.Name(), tempPrefix) || isLive(name):
			return nil
		}
		return os.Remove(filepath.Join(d.root, filepath.FromSlash(name)))
	})
	for _, name := range slices.Backward(folders) { // removes subfolders before their parents
		if path := filepath.Join(d.root, filepath.FromSlash(name)); !isLive(name+"/") && os.Remove(path) == nil {
			d.notifyChange("remove", path, "")
		}
	}
	return WrapError("sweep", prefix, d, err)
}
