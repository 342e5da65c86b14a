package cache

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
)

// keyBytes is the size of a key that is made here; maxKey bounds one that is read.
const (
	keyBytes = 32
	maxKey   = 4 << 10
)

// keyName is the key's file in the user's folder of settings; localKey is that beside the entries,
// where the user has no such folder.
const (
	keyName  = "tpustrategy/compile-cache.key"
	localKey = ".key"
)

// signingKey finds the key that the entries of a directory are signed with: the one given, that of
// a file, or else the user's.
func signingKey(given []byte, file, dir string, logger *slog.Logger) ([]byte, error) {
	switch {
	case len(given) > 0 && file != "":
		return nil, &errkind.Fault{Op: "cache: open", Reason: "both Key and KeyFile are given", Hint: "give one of them", Class: errkind.ValueError}
	case len(given) > 0 && len(given) < keyBytes/2:
		return nil, &errkind.Fault{Op: "cache: open", Reason: fmt.Sprintf("Key has %d bytes", len(given)), Hint: fmt.Sprintf("give %d or more that are random", keyBytes/2), Class: errkind.ValueError}
	case len(given) > 0:
		return append([]byte(nil), given...), nil
	case file != "":
		return keyOfFile(file)
	}
	folder, err := os.UserConfigDir()
	if err == nil {
		path := filepath.Join(folder, filepath.FromSlash(keyName))
		var k []byte
		if k, err = keyOfFile(path); err == nil {
			return k, nil
		}
		if _, there := os.Lstat(path); there == nil {
			return nil, err // it is there, and not to be used as it is
		}
	}
	// A container's user may have no folder that can be written to.
	logger.Warn("compile cache: its key lies beside its entries, as the user's folder of settings cannot hold it; give Options.KeyFile or Options.Key", "error", err)
	return keyOfFile(filepath.Join(dir, localKey))
}

// keyOfFile reads a key, making one if there is none. The file is the user's alone.
func keyOfFile(path string) ([]byte, error) {
	if err := files.Local(path); err != nil {
		return nil, fail("read the key", err)
	}
	k, err := readKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if err := makeKey(path); err != nil && !errors.Is(err, fs.ErrExist) { // another process was first
		return nil, fail("make the key", err)
	}
	return readKey(path)
}

func readKey(path string) ([]byte, error) {
	real, err := files.Trust{}.OfProcess().File(path)
	if err != nil {
		return nil, fail("read the key", err)
	}
	k, info, err := files.ReadHere(real, maxKey)
	if err != nil {
		return nil, fail("read the key", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fail("read the key", &files.Error{Path: real, Reason: files.Readable,
			Found: fmt.Sprintf("mode %#o", mode), Hint: "run chmod 600 " + real + ", or remove it, and a new one is made"})
	}
	if len(k) < keyBytes/2 {
		return nil, fail("read the key", &errkind.Fault{Op: real, Reason: fmt.Sprintf("it has %d bytes, at least %d are needed", len(k), keyBytes/2), Hint: "remove it, and a new one is made", Class: errkind.ValueError})
	}
	return k, nil
}

// makeKey makes a key's file appear whole, if there is none.
func makeKey(path string) error {
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	beside, err := temporary(folder, newKey())
	if err != nil {
		return err
	}
	defer os.Remove(beside)
	return os.Link(beside, path) // unlike a rename it replaces nothing
}

// newKey is a key that nobody else has.
func newKey() []byte {
	k := make([]byte, keyBytes)
	_, _ = rand.Read(k) // it never fails
	return k
}
