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

// signingKeySize is the size of a new key, and maxKeyFileSize the maximum size of a key file, in bytes.
const (
	signingKeySize = 32
	maxKeyFileSize = 4 << 10
)

// userKeyFile is the path of the key in the user's configuration directory. localKeyFile is its
// name in the directory of the cache if the user has no configuration directory.
const (
	userKeyFile  = "tpustrategy/compile-cache.key"
	localKeyFile = ".key"
)

// loadSigningKey returns signingKey if it is not empty, otherwise the key in file if file is set,
// and otherwise the user's default key. If the user's configuration directory is not writable, the
// default key is stored in dir, the directory of the cache.
func loadSigningKey(signingKey []byte, file, dir string, logger *slog.Logger) ([]byte, error) {
	switch {
	case len(signingKey) > 0 && file != "":
		return nil, &errkind.Fault{Op: "cache: open", Reason: "both SigningKey and SigningKeyFile are set",
			Hint: "set only one of them", Class: errkind.ValueError}
	case len(signingKey) > 0 && len(signingKey) < signingKeySize/2:
		return nil, &errkind.Fault{Op: "cache: open", Reason: fmt.Sprintf("SigningKey has %d bytes", len(signingKey)),
			Hint: fmt.Sprintf("use at least %d random bytes", signingKeySize/2), Class: errkind.ValueError}
	case len(signingKey) > 0:
		return append([]byte(nil), signingKey...), nil
	case file != "":
		return readOrCreateKey(file)
	}
	configDir, err := os.UserConfigDir()
	if err == nil {
		path := filepath.Join(configDir, filepath.FromSlash(userKeyFile))
		var k []byte
		if k, err = readOrCreateKey(path); err == nil {
			return k, nil
		}
		if _, statErr := os.Lstat(path); statErr == nil {
			return nil, err // the file exists but is not valid
		}
	}
	// The user of a container may have no writable configuration directory.
	logger.Warn(
		"compile cache stores its key with its entries, because the user's configuration directory is not writable; "+
			"set Options.SigningKeyFile or Options.SigningKey", "error", err)
	return readOrCreateKey(filepath.Join(dir, localKeyFile))
}

// readOrCreateKey returns the key in a file. If the file does not exist, it is created with a new key.
func readOrCreateKey(path string) ([]byte, error) {
	if err := files.CheckLocal(path); err != nil {
		return nil, opError("read the key", err)
	}
	k, err := readKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if err := createKey(path); err != nil && !errors.Is(err, fs.ErrExist) { // another process was first
		return nil, opError("create the key", err)
	}
	return readKey(path)
}

func readKey(path string) ([]byte, error) {
	realPath, err := files.Trust{}.WithProcess().CheckFile(path)
	if err != nil {
		return nil, opError("read the key", err)
	}
	k, info, err := files.ReadFileNoFollow(realPath, maxKeyFileSize)
	if err != nil {
		return nil, opError("read the key", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, opError("read the key", &files.Error{Path: realPath, Reason: files.OthersCanRead,
			Found: fmt.Sprintf("mode %#o", mode),
			Hint:  "run chmod 600 " + realPath + ", or remove the file to create a new key"})
	}
	if len(k) < signingKeySize/2 {
		return nil, opError("read the key", &errkind.Fault{Op: realPath, Class: errkind.ValueError,
			Reason: fmt.Sprintf("it has %d bytes, but at least %d are required", len(k), signingKeySize/2),
			Hint:   "remove the file to create a new key"})
	}
	return k, nil
}

// createKey atomically creates a file with a new random key. It returns fs.ErrExist if the file exists.
func createKey(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tempPath, err := createTemp(dir, newKey())
	if err != nil {
		return err
	}
	defer os.Remove(tempPath)
	return os.Link(tempPath, path) // a rename would replace an existing file
}

func newKey() []byte {
	k := make([]byte, signingKeySize)
	_, _ = rand.Read(k) // it never fails
	return k
}
