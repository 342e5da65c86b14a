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

// Directory returns the store of a folder of this machine's file system, and makes the folder if it
// is not there. Processes of several machines may share it through a network file system that has
// links or exclusive renames. The path itself may lead through symbolic links; a link below it is no
// object and no folder of objects.
func Directory(path string) (Store, error) {
	if err := local(path); err != nil {
		return nil, err
	}
	d := &directory{root: filepath.Clean(path)}
	if err := d.make(d.root); err != nil {
		return nil, Failed("open", "", d, err)
	}
	info, err := os.Stat(d.root)
	if err == nil && !info.IsDir() {
		err = &files.Error{Path: d.root, Reason: files.NotRegular, Found: "no folder", Hint: "name a folder, or a path where nothing stands"}
	}
	if err != nil {
		return nil, Failed("open", "", d, err)
	}
	return d, nil
}

type directory struct {
	root string
	did  func(change, path, from string) // of tests, which keep a picture of the disk
}

// changed tells of a change to the file system; from is the file's name before a rename or a link.
func (d *directory) changed(change, path, from string) {
	if d.did != nil {
		d.did(change, path, from)
	}
}

// unfinished begins the name of a file that is no object yet.
const unfinished = ".put-"

func (d *directory) String() string { return d.root }
func (d *directory) Close() error   { return nil }

// make makes a folder and those above it that lack, and brings them to the disk.
func (d *directory) make(path string) error {
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above := filepath.Dir(path)
	if err := d.make(above); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d.changed("mkdir", path, "")
	return d.sync(above)
}

// sync brings a folder's entries to the disk.
func (d *directory) sync(path string) error {
	f, err := os.Open(path)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err == nil {
		d.changed("sync", path, "")
	}
	return err
}

// path is where an object lies. A folder on the way that is a symbolic link is an error: what lies
// behind it is not this store's, and may be another name of what is.
func (d *directory) path(ctx context.Context, name string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", Failed("find", name, d, err)
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
			err = files.Regular(path, info)
		}
		if err != nil {
			return "", Failed("find", name, d, err)
		}
	}
	return filepath.Join(d.root, filepath.FromSlash(name)), nil
}

func (d *directory) Put(ctx context.Context, name string, opts PutOptions, write func(io.Writer) error) error {
	path, err := d.path(ctx, name)
	if err != nil {
		return err
	}
	if opts.IfAbsent { // it need not be written in vain
		if _, err := os.Lstat(path); err == nil {
			return Failed("put", name, d, ErrExists)
		}
	}
	err = d.put(ctx, path, opts, write)
	if err != nil && opts.Volatile && !opts.IfAbsent && ctx.Err() == nil && overwrite(path, write) == nil {
		return nil // in the object's own blocks
	}
	return Failed("put", name, d, err)
}

// overwrite writes over a file that is there.
func overwrite(path string, write func(io.Writer) error) error {
	f, err := files.OpenOwn(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	err = write(f)
	if at, failed := f.Seek(0, io.SeekCurrent); err == nil && failed == nil {
		err = f.Truncate(at)
	}
	return errors.Join(err, f.Close())
}

// create makes a file and its folder. Other processes remove folders that are empty, at any time
// before the file is there.
func (d *directory) create(folder, path string, size int64) (w *writer, err error) {
	for range maxTries {
		if err = d.make(folder); err == nil {
			w, err = create(path, size)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return w, err
}

// maxTries limits how often an operation is tried again because another process removed a folder or a
// file meanwhile. It is far more than other processes remove.
const maxTries = 100

func (d *directory) put(ctx context.Context, path string, opts PutOptions, write func(io.Writer) error) error {
	folder := filepath.Dir(path)
	temp := filepath.Join(folder, unfinished+rand.Text())
	w, err := d.create(folder, temp, opts.Size)
	if err != nil {
		d.prune(folder)
		return err
	}
	d.changed("create", temp, "")
	placed := false
	defer func() {
		if !placed {
			_ = os.Remove(temp)
			d.changed("remove", temp, "")
			d.prune(folder)
		}
	}()
	err = write(&contextWriter{ctx, w})
	if err == nil && !opts.Volatile {
		err = w.Sync()
		d.changed("sync file", temp, "")
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
		placed, err = place(temp, path)
	} else {
		err = os.Rename(temp, path)
		placed = err == nil
	}
	if err != nil {
		return err
	}
	d.changed(map[bool]string{true: "rename", false: "link"}[placed], path, temp)
	if opts.Volatile {
		return nil
	}
	return d.sync(folder)
}

// place gives a file a name that no file has. placed is false where its first name stays.
func place(temp, path string) (placed bool, err error) {
	switch err := os.Link(temp, path); {
	case err == nil:
		return false, nil // the deferred removal takes the first name away
	case errors.Is(err, fs.ErrExist):
		return false, ErrExists
	}
	// A file system without links.
	switch err := renameExclusive(temp, path); {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrExist):
		return false, ErrExists
	default:
		return false, err
	}
}

// contextWriter is a writer that ends with its context.
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
	path, err := d.path(ctx, name)
	if err != nil {
		return nil, err
	}
	f, info, err := files.OpenHere(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotExist
	}
	if err != nil {
		return nil, Failed("open", name, d, err)
	}
	return &file{f, info.Size(), name, d}, nil
}

// file is an object of a folder.
type file struct {
	*os.File
	size int64
	name string
	in   Store
}

func (f *file) Size() int64 { return f.size }

func (f *file) ReadAt(ctx context.Context, p []byte, offset int64) error {
	err := ctx.Err()
	if err == nil {
		_, err = f.File.ReadAt(p, offset)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return Failed("read", f.name, f.in, err)
}

// List lists again if files went away meanwhile: a walk through changing folders can leave out
// both an object that is removed and the object that was put in its place before.
func (d *directory) List(ctx context.Context, prefix string) (all []Info, err error) {
	for range maxTries {
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
	return all, Failed("list", prefix, d, err)
}

// walk visits the files and folders whose names begin with prefix, and the folder of a prefix that ends in
// a slash. It leaves out files and folders that are removed
// before it reads them; missed reports that there were some.
func (d *directory) walk(ctx context.Context, prefix string, visit func(name string, e fs.DirEntry) error) (missed bool, err error) {
	start := d.root
	if i := strings.LastIndexByte(prefix, '/'); i > 0 {
		if start, err = d.path(ctx, prefix[:i]); err != nil {
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
	path, err := d.path(ctx, name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return Failed("remove", name, d, err)
	}
	d.changed("remove", path, "")
	if err := d.sync(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) { // what is removed after it is not gone before it
		return Failed("remove", name, d, err)
	}
	d.prune(filepath.Dir(path))
	return nil
}

// prune removes folders that have become empty: they are no objects.
func (d *directory) prune(folder string) {
	for folder != d.root && strings.HasPrefix(folder, d.root) && os.Remove(folder) == nil {
		d.changed("remove", folder, "")
		folder = filepath.Dir(folder)
	}
}

// Sweep removes files of Puts that were killed, and empty folders. A Put that has just made such a folder
// makes it again.
func (d *directory) Sweep(ctx context.Context, prefix string, live func(string) bool) error {
	var folders []string
	_, err := d.walk(ctx, prefix, func(name string, e fs.DirEntry) error {
		switch {
		case e.IsDir():
			folders = append(folders, name)
			return nil
		case !strings.HasPrefix(e.Name(), unfinished) || live(name):
			return nil
		}
		return os.Remove(filepath.Join(d.root, filepath.FromSlash(name)))
	})
	for _, name := range slices.Backward(folders) { // a folder comes after the folders in it
		if path := filepath.Join(d.root, filepath.FromSlash(name)); !live(name+"/") && os.Remove(path) == nil {
			d.changed("remove", path, "")
		}
	}
	return Failed("sweep", prefix, d, err)
}
