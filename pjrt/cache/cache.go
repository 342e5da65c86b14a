package cache

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"weak"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/storage"
)

// Options configure a cache. The zero value is valid.
type Options struct {
	// MaxBytes is the limit of the total size of all entries. If it is exceeded, the least recently
	// used entries are removed. 0 means 4 GiB, and a negative value means no limit.
	MaxBytes int64
	// SigningKey signs the entries. It must have at least 16 random bytes. Processes with the same key
	// share their entries, also between machines; processes with other keys ignore them.
	SigningKey []byte
	// SigningKeyFile is a file with the key, which is used if SigningKey is empty. Only its owner may
	// have access. The file is created if it does not exist. The default is
	// tpustrategy/compile-cache.key in the user's configuration directory (os.UserConfigDir).
	SigningKeyFile string
	// Store, if not nil, is a second cache that several hosts or jobs share, such as a bucket.
	// Programs that are not in the directory are read from the store. The process that compiles a
	// program first writes it to the store. All users of the store need the same SigningKey or
	// SigningKeyFile; [StoreSigningKey] returns a key that is stored in the store. The cache does not
	// evict entries from the store. The caller must close the store when the cache is no longer used.
	Store storage.Store
	// AllowSharedDir permits a directory that other users own or can write to. These users can remove
	// entries, but they cannot create valid ones without the key.
	AllowSharedDir bool
	// Compiler compiles the programs that are not in the cache. nil means the client's compiler.
	Compiler pjrt.Compiler
	// Logger receives a debug message for each hit and miss, and a warning for each damaged entry
	// and each failed write. nil discards them.
	Logger *slog.Logger
}

// clientCompiler is the default Compiler, which compiles in this process.
type clientCompiler struct{}

func (clientCompiler) Compile(ctx context.Context, client *pjrt.Client, program pjrt.Program,
	opts pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	return client.Compile(ctx, program, opts)
}

const defaultMaxBytes = 4 << 30

// Cache is a directory of compiled programs. It is safe for concurrent use, also by several
// processes. It does not need to be closed.
type Cache struct {
	dir      string
	maxBytes int64
	compiler pjrt.Compiler
	// keepSerialized is true if Options.Compiler is set. Loaded programs then keep their serialized
	// bytes.
	keepSerialized bool
	signingKey     []byte
	sharedStore    storage.Store // may be nil
	logger         *slog.Logger
	stats          struct{ hits, misses, downloads, corrupt, writeErrors atomic.Int64 }
	lastIdentity   atomic.Pointer[cachedIdentity]
}

// cachedIdentity is the identity of the most recent client. It is cached because computing it takes
// milliseconds, which is longer than loading a small program.
type cachedIdentity struct {
	client   weak.Pointer[pjrt.Client]
	identity string
}

// clientIdentity returns [pjrt.Client.Identity] of a client. The result is cached, so it does not
// change if the plugin file changes later.
func (c *Cache) clientIdentity(client *pjrt.Client) (string, error) {
	ref := weak.Make(client)
	if last := c.lastIdentity.Load(); last != nil && last.client == ref {
		return last.identity, nil
	}
	identity, err := client.Identity()
	if err == nil {
		c.lastIdentity.Store(&cachedIdentity{ref, identity})
	}
	return identity, err
}

// Stats counts the events of a Cache in this process.
type Stats struct {
	// Hits counts loaded programs, and Misses compiled programs. Corrupt counts the misses with an
	// entry that was damaged or could not be loaded.
	Hits, Misses, Corrupt int64
	// Downloads counts the entries that were read from the Store.
	Downloads int64
	// WriteErrors counts the entries that could not be written to the directory or to the Store.
	WriteErrors int64
}

// Open opens a cache directory and creates it if necessary. The directory and its parents must
// belong to root or the current user, and must not be writable by other users, unless
// [Options].AllowSharedDir is set. URLs, and keys that other users can read, are always errors. The
// error is a [*pjrt.PathError] with a correction, or matches an error of package fs.
func Open(dir string, o Options) (*Cache, error) {
	if dir == "" {
		return nil, &errkind.Fault{Op: "cache: open", Reason: "the directory is empty", Class: errkind.ValueError,
			Err: fs.ErrInvalid, Hint: "pass the directory for compiled programs"}
	}
	if err := files.CheckLocal(dir); err != nil {
		return nil, opError("open", err)
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, opError("open", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, opError("open", err)
	}
	if _, err := (files.Trust{}).WithProcess().CheckDirectory(path, o.AllowSharedDir); err != nil {
		return nil, opError("open", err)
	}
	c := &Cache{dir: path, maxBytes: o.MaxBytes, logger: o.Logger}
	if c.maxBytes == 0 {
		c.maxBytes = defaultMaxBytes
	}
	if c.compiler, c.keepSerialized = o.Compiler, o.Compiler != nil; !c.keepSerialized {
		c.compiler = clientCompiler{}
	}
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	if c.sharedStore = o.Store; c.sharedStore != nil && len(o.SigningKey) == 0 && o.SigningKeyFile == "" {
		return nil, &errkind.Fault{Op: "cache: open", Subject: o.Store.String(), Class: errkind.ValueError,
			Reason: "a shared store requires a SigningKey or SigningKeyFile, because other hosts do not have this user's " +
				"default key",
			Hint: "set the same SigningKey or SigningKeyFile on all hosts, or use cache.StoreSigningKey"}
	}
	if c.signingKey, err = loadSigningKey(o.SigningKey, o.SigningKeyFile, path, c.logger); err != nil {
		return nil, err
	}
	return c, nil
}

// Dir returns the absolute path of the directory.
func (c *Cache) Dir() string { return c.dir }

// Stats returns the current counters.
func (c *Cache) Stats() Stats {
	return Stats{c.stats.hits.Load(), c.stats.misses.Load(), c.stats.corrupt.Load(), c.stats.downloads.Load(),
		c.stats.writeErrors.Load()}
}

// Compile loads the program from the cache. If the program is not in the cache, Compile compiles it
// and adds it to the cache. The caller must close the executable. Errors of the cache are logged,
// not returned. A program with DumpDir is always compiled, because the compiler writes the dump.
func (c *Cache) Compile(ctx context.Context, client *pjrt.Client, program pjrt.Program,
	opts pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	if c.compiler == nil {
		return nil, errZeroCache
	}
	if opts.DumpDir != "" {
		return c.compiler.Compile(ctx, client, program, opts)
	}
	identity, err := c.clientIdentity(client)
	if err != nil {
		c.logger.Warn("compile cache is not used", "error", err)
		return c.compiler.Compile(ctx, client, program, opts)
	}
	key := newEntryKey(identity, client, program, opts)
	if x := c.load(ctx, client, key); x != nil {
		return x, nil
	}
	c.stats.misses.Add(1)
	start := time.Now()
	x, err := c.compiler.Compile(ctx, client, program, opts)
	if err != nil {
		return nil, err
	}
	c.logger.Debug("compile cache miss", "entry", c.entryPath(key), "compiling", time.Since(start))
	c.storeProgram(ctx, key, x)
	return x, nil
}

// CompileTopology compiles a program ahead of time. It uses Options.Compiler if it is a
// [pjrt.TopologyCompiler], and the topology's own compiler otherwise. The result is not cached.
func (c *Cache) CompileTopology(ctx context.Context, topology *pjrt.Topology, program pjrt.Program,
	opts pjrt.CompileOptions) (*pjrt.Executable, error) {
	if c.compiler == nil {
		return nil, errZeroCache
	}
	if ahead, ok := c.compiler.(pjrt.TopologyCompiler); ok {
		return ahead.CompileTopology(ctx, topology, program, opts)
	}
	return topology.Compile(ctx, program, opts)
}

// entryName returns the file name of an entry. The name depends on the signing key, so that entries
// signed with another key are ignored instead of being reported as damaged.
func (c *Cache) entryName(key entryKey) string {
	return hex.EncodeToString(hmacSHA256(c.signingKey, []byte("name"), key[:]))
}

func (c *Cache) entryPath(key entryKey) string { return filepath.Join(c.dir, c.entryName(key)) }

// load returns the cached program from the directory or the store. It returns nil if neither
// contains a valid entry.
func (c *Cache) load(ctx context.Context, client *pjrt.Client, key entryKey) *pjrt.LoadedExecutable {
	path := c.entryPath(key)
	data, _, err := files.ReadFileNoFollow(path, c.maxEntryBytes())
	if !errors.Is(err, fs.ErrNotExist) {
		// An invalid entry is removed, also if it is not a regular file.
		if x := c.loadEntry(ctx, client, key, path, data, err, func() error { return os.Remove(path) }); x != nil {
			now := time.Now()
			// evictEntries removes the entries with the oldest times. Errors are ignored.
			_ = os.Chtimes(path, now, now)
			return x
		}
	}
	if c.sharedStore == nil {
		return nil
	}
	name := c.entryName(key)
	data, err = storage.ReadAll(ctx, c.sharedStore, name, c.maxEntryBytes())
	if err != nil {
		if !errors.Is(err, storage.ErrNotExist) && ctx.Err() == nil {
			c.logger.Warn("compile cache cannot read its store, compiling", "store", c.sharedStore.String(), "entry", name,
				"error", err)
		}
		return nil
	}
	x := c.loadEntry(ctx, client, key, c.sharedStore.String()+": "+name, data, nil,
		func() error { return c.sharedStore.Remove(ctx, name) })
	if x != nil {
		c.stats.downloads.Add(1)
		c.writeEntry(key, data)
	}
	return x
}

// loadEntry verifies an entry, whose file contains data, and loads its program. If the entry is
// invalid, or err is a read error of the file, loadEntry calls remove and returns nil. location is
// the entry's path in log messages.
func (c *Cache) loadEntry(ctx context.Context, client *pjrt.Client, key entryKey, location string, data []byte,
	err error, remove func() error) *pjrt.LoadedExecutable {
	var payload []byte
	if err == nil {
		payload, err = decodeEntry(c.signingKey, key, data)
	}
	if err == nil {
		start := time.Now()
		var x *pjrt.LoadedExecutable
		if x, err = client.Load(ctx, payload, pjrt.LoadOptions{KeepSerialized: c.keepSerialized}); err == nil {
			c.stats.hits.Add(1)
			c.logger.Debug("compile cache hit", "entry", location, "loading", time.Since(start))
			return x
		}
	}
	if ctx.Err() != nil || errors.Is(err, pjrt.ErrClosed) {
		return nil // the entry may be valid
	}
	c.stats.corrupt.Add(1)
	c.logger.Warn("compile cache entry is not usable, compiling again", "entry", location, "error", err)
	if err := remove(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.logger.Warn("compile cache entry not removed", "entry", location, "error", err)
	}
	return nil
}

// maxSerializedBytes is the maximum size of an entry. Serialized programs are protocol buffers of
// less than 2 GiB.
const maxSerializedBytes = 2 << 30

func (c *Cache) maxEntryBytes() int64 {
	if c.maxBytes > 0 {
		return min(maxSerializedBytes, c.maxBytes)
	}
	return maxSerializedBytes
}

// storeProgram serializes a program and writes it to the directory and the shared store.
func (c *Cache) storeProgram(ctx context.Context, key entryKey, x *pjrt.LoadedExecutable) {
	payload, err := x.Executable().Serialize()
	if errors.Is(err, errors.ErrUnsupported) {
		c.logger.Debug("compile cache is not used: the plugin cannot serialize programs")
		return
	}
	if err == nil && c.maxBytes > 0 && int64(len(payload)+headerSize) > c.maxBytes {
		c.logger.Debug("compile cache: the program is larger than the cache", "bytes", len(payload))
		return
	}
	if err != nil {
		c.logWriteError(c.entryPath(key), err)
		return
	}
	entry := encodeEntry(c.signingKey, key, payload)
	c.writeEntry(key, entry)
	c.uploadEntry(ctx, key, entry)
}

func (c *Cache) writeEntry(key entryKey, entry []byte) {
	path := c.entryPath(key)
	if err := replaceFile(path, entry); err != nil {
		c.logWriteError(path, err)
		return
	}
	c.evictEntries(path)
}

func (c *Cache) logWriteError(location string, err error) {
	c.stats.writeErrors.Add(1)
	c.logger.Warn("compile cache entry not written", "entry", location, "error", err)
}

// abandonedTempAge is the age after which a temporary file is deleted, because the process that
// created it has probably crashed.
const abandonedTempAge = time.Hour

// evictEntries removes the least recently used entries until the total size is at most
// Options.MaxBytes. It does not remove the entry at keepPath.
func (c *Cache) evictEntries(keepPath string) {
	files, err := os.ReadDir(c.dir)
	if err != nil {
		c.logger.Warn("compile cache not trimmed", "error", err)
		return
	}
	var entries []fs.FileInfo
	total := int64(0)
	for _, file := range files {
		info, err := file.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue // another process removed it
		}
		if strings.HasPrefix(file.Name(), ".writing-") {
			if time.Since(info.ModTime()) > abandonedTempAge {
				_ = os.Remove(filepath.Join(c.dir, file.Name()))
			}
			continue
		}
		if name, err := hex.DecodeString(file.Name()); err != nil || len(name) != len(entryKey{}) {
			continue // not an entry
		}
		entries = append(entries, info)
		total += info.Size()
	}
	if c.maxBytes < 0 || total <= c.maxBytes {
		return
	}
	slices.SortFunc(entries, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range entries {
		path := filepath.Join(c.dir, info.Name())
		if total <= c.maxBytes || path == keepPath {
			continue
		}
		if err := os.Remove(path); err == nil {
			c.logger.Debug("compile cache entry removed for space", "entry", path)
		}
		total -= info.Size()
	}
}
