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

// Options configure a cache. The zero value works.
type Options struct {
	// MaxBytes bounds the size of all entries together: beyond it, the entries that were not used
	// for longest are removed. 0 is 4 GiB, and a negative number is no bound.
	MaxBytes int64
	// Key signs the entries: at least 16 random bytes. Processes with one key share their entries,
	// also between machines; for other processes the entries are not there.
	Key []byte
	// KeyFile is the file that has the key, if Key is empty. Only its owner may read it; if there
	// is none, it is made. Without Key and KeyFile it is tpustrategy/compile-cache.key in the
	// user's folder of settings (os.UserConfigDir).
	KeyFile string
	// Store is one that hosts and runs share, such as a bucket: a program that is not in the directory
	// is fetched from there, and one that was compiled is put there, once, by whoever is first. Those
	// who share it need one Key or KeyFile, which may be the store's own ([SharedKey]). Nothing is
	// removed from it for space. It stays the caller's, to close when the cache is not used any more.
	Store storage.Store
	// Shared takes a directory that others may write to, or that somebody else owns. They can
	// remove entries; without the key that signs the entries they can do nothing else.
	Shared bool
	// Compiler compiles the programs that are not in the cache, such as package pjrt/worker's; nil
	// is the client's own compiler.
	Compiler pjrt.Compiler
	// Logger receives a line for each hit and miss (debug), and for each damaged entry and each
	// failure to write (warn); nil discards.
	Logger *slog.Logger
}

// ownCompiler is the client's.
type ownCompiler struct{}

func (ownCompiler) Compile(ctx context.Context, client *pjrt.Client, program pjrt.Program, opts pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	return client.Compile(ctx, program, opts)
}

// defaultMaxBytes is MaxBytes of the zero Options.
const defaultMaxBytes = 4 << 30

// Cache is a directory of compiled programs. It is safe for concurrent use, by several processes
// too, and has no Close.
type Cache struct {
	dir      string
	max      int64
	compiler pjrt.Compiler
	// keep is set where a compiler was given: a program is then not compiled again to be written
	// out.
	keep   bool
	key    []byte
	shared storage.Store // nil without one
	logger *slog.Logger
	stats  struct{ hits, misses, fetched, corrupt, failed atomic.Int64 }
	known  atomic.Pointer[clientIdentity]
}

// clientIdentity is the client whose identity was found out last: to read it takes milliseconds,
// which is more than a small program takes to load.
type clientIdentity struct {
	client   weak.Pointer[pjrt.Client]
	identity string
}

// identityOf is [Identity], found out once for a client. The library that a client has loaded stays
// what it is, whatever becomes of its file.
func (c *Cache) identityOf(client *pjrt.Client) (string, error) {
	this := weak.Make(client)
	if known := c.known.Load(); known != nil && known.client == this {
		return known.identity, nil
	}
	identity, err := Identity(client)
	if err == nil {
		c.known.Store(&clientIdentity{this, identity})
	}
	return identity, err
}

// Stats counts what a Cache did in this process.
type Stats struct {
	// Hits counts the programs that were loaded, and Misses those that were compiled. Corrupt
	// counts the misses whose entry was there, and was damaged or refused by the plugin.
	Hits, Misses, Corrupt int64
	// Fetched counts the entries that came from the Store.
	Fetched int64
	// Failed counts the entries that could not be written, into the directory or into the Store.
	Failed int64
}

// Open opens a cache in a directory, which it makes if there is none. Unless [Options].Shared is
// set, it refuses a directory that others can write to or that somebody else owns, and such folders
// on the way to it. It always refuses URLs, and a key that others can read. The error is a
// [*pjrt.PathError] that says what to change; other errors match those of package fs.
func Open(dir string, o Options) (*Cache, error) {
	if dir == "" {
		return nil, &errkind.Fault{Op: "cache: open", Reason: "no directory is given", Class: errkind.ValueError, Err: fs.ErrInvalid, Hint: "name the one to keep programs in"}
	}
	if err := files.Local(dir); err != nil {
		return nil, fail("open", err)
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, fail("open", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fail("open", err)
	}
	if _, err := (files.Trust{}).OfProcess().Directory(path, o.Shared); err != nil {
		return nil, fail("open", err)
	}
	c := &Cache{dir: path, max: o.MaxBytes, logger: o.Logger}
	if c.max == 0 {
		c.max = defaultMaxBytes
	}
	if c.compiler, c.keep = o.Compiler, o.Compiler != nil; !c.keep {
		c.compiler = ownCompiler{}
	}
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	if c.shared = o.Store; c.shared != nil && len(o.Key) == 0 && o.KeyFile == "" {
		return nil, &errkind.Fault{Op: "cache: open", Subject: o.Store.String(), Reason: "this user's own key would sign entries that no other host can read", Class: errkind.ValueError,
			Hint: "give all hosts one Key or KeyFile, or the store's own by cache.SharedKey"}
	}
	if c.key, err = signingKey(o.Key, o.KeyFile, path, c.logger); err != nil {
		return nil, err
	}
	return c, nil
}

// Dir returns the directory's absolute path.
func (c *Cache) Dir() string { return c.dir }

// Stats returns the counts so far.
func (c *Cache) Stats() Stats {
	return Stats{c.stats.hits.Load(), c.stats.misses.Load(), c.stats.corrupt.Load(), c.stats.fetched.Load(), c.stats.failed.Load()}
}

// Compile loads the program from the cache, or compiles it and keeps it there. The executable is
// the caller's to Close. Its errors are the compiler's only: trouble with the cache is logged. A
// program with DumpDir is compiled each time, since that is what writes the dump.
func (c *Cache) Compile(ctx context.Context, client *pjrt.Client, program pjrt.Program, opts pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	if c.compiler == nil {
		return nil, errZero
	}
	if opts.DumpDir != "" {
		return c.compiler.Compile(ctx, client, program, opts)
	}
	identity, err := c.identityOf(client)
	if err != nil {
		c.logger.Warn("compile cache unused", "error", err)
		return c.compiler.Compile(ctx, client, program, opts)
	}
	k := keyOf(identity, client, program, opts)
	if x := c.load(ctx, client, k); x != nil {
		return x, nil
	}
	c.stats.misses.Add(1)
	start := time.Now()
	x, err := c.compiler.Compile(ctx, client, program, opts)
	if err != nil {
		return nil, err
	}
	c.logger.Debug("compile cache miss", "entry", c.path(k), "compiling", time.Since(start))
	c.store(ctx, k, x)
	return x, nil
}

// CompileTopology compiles ahead of time, by the cache's Compiler if that can, and keeps nothing:
// the caller saves what is compiled ahead of time.
func (c *Cache) CompileTopology(ctx context.Context, topology *pjrt.Topology, program pjrt.Program, opts pjrt.CompileOptions) (*pjrt.Executable, error) {
	if c.compiler == nil {
		return nil, errZero
	}
	if ahead, ok := c.compiler.(pjrt.TopologyCompiler); ok {
		return ahead.CompileTopology(ctx, topology, program, opts)
	}
	return topology.Compile(ctx, program, opts)
}

// name is that of the entry of a key. Users with another key of their own have their entries
// elsewhere, and do not take this user's for damaged.
func (c *Cache) name(k key) string { return hex.EncodeToString(sign(c.key, []byte("name"), k[:])) }

// path is where the entry is in the directory.
func (c *Cache) path(k key) string { return filepath.Join(c.dir, c.name(k)) }

// load returns the entry of a key, from the directory or else from the store, or nil if there is none
// that can be used.
func (c *Cache) load(ctx context.Context, client *pjrt.Client, k key) *pjrt.LoadedExecutable {
	path := c.path(k)
	data, _, err := files.ReadHere(path, c.limit())
	if !errors.Is(err, fs.ErrNotExist) {
		// Whatever lies there makes room for the next entry, a folder only if it is empty.
		if x := c.use(ctx, client, k, path, data, err, func() error { return os.Remove(path) }); x != nil {
			now := time.Now()
			// The time of use decides what is removed first; it is no loss if it cannot be noted.
			_ = os.Chtimes(path, now, now)
			return x
		}
	}
	if c.shared == nil {
		return nil
	}
	name := c.name(k)
	data, err = storage.ReadAll(ctx, c.shared, name, c.limit())
	if err != nil {
		if !errors.Is(err, storage.ErrNotExist) && ctx.Err() == nil {
			c.logger.Warn("compile cache's store unread, compiling", "store", c.shared.String(), "entry", name, "error", err)
		}
		return nil
	}
	x := c.use(ctx, client, k, c.shared.String()+": "+name, data, nil, func() error { return c.shared.Remove(ctx, name) })
	if x != nil {
		c.stats.fetched.Add(1)
		c.write(k, data)
	}
	return x
}

// use loads the program of an entry that was read, or removes it and returns nil.
func (c *Cache) use(ctx context.Context, client *pjrt.Client, k key, entry string, data []byte, err error, remove func() error) *pjrt.LoadedExecutable {
	var payload []byte
	if err == nil {
		payload, err = decode(c.key, k, data)
	}
	if err == nil {
		start := time.Now()
		var x *pjrt.LoadedExecutable
		if x, err = client.Load(ctx, payload, pjrt.LoadOptions{Keep: c.keep}); err == nil {
			c.stats.hits.Add(1)
			c.logger.Debug("compile cache hit", "entry", entry, "loading", time.Since(start))
			return x
		}
	}
	if ctx.Err() != nil || errors.Is(err, pjrt.ErrClosed) {
		return nil // nothing is wrong with the entry
	}
	c.stats.corrupt.Add(1)
	c.logger.Warn("compile cache entry unusable, compiling again", "entry", entry, "error", err)
	if err := remove(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.logger.Warn("compile cache entry not removed", "entry", entry, "error", err)
	}
	return nil
}

// maxEntry bounds an entry: plugins serialize programs as messages of less than 2 GiB.
const maxEntry = 2 << 30

// limit bounds an entry of this cache.
func (c *Cache) limit() int64 {
	if c.max > 0 {
		return min(maxEntry, c.max)
	}
	return maxEntry
}

// store keeps a program.
func (c *Cache) store(ctx context.Context, k key, x *pjrt.LoadedExecutable) {
	payload, err := x.Executable().Serialize()
	if errors.Is(err, errors.ErrUnsupported) {
		c.logger.Debug("compile cache unused: the plugin cannot serialize programs")
		return
	}
	if err == nil && c.max > 0 && int64(len(payload)+headerSize) > c.max {
		c.logger.Debug("compile cache: the program is larger than the cache", "bytes", len(payload))
		return
	}
	if err != nil {
		c.unwritten(c.path(k), err)
		return
	}
	entry := encode(c.key, k, payload)
	c.write(k, entry)
	c.share(ctx, k, entry)
}

// write puts an entry into the directory.
func (c *Cache) write(k key, entry []byte) {
	path := c.path(k)
	if err := write(path, entry); err != nil {
		c.unwritten(path, err)
		return
	}
	c.trim(path)
}

func (c *Cache) unwritten(entry string, err error) {
	c.stats.failed.Add(1)
	c.logger.Warn("compile cache entry not written", "entry", entry, "error", err)
}

// abandoned is the age at which a file that is being written is taken for one that a process left
// behind.
const abandoned = time.Hour

// trim removes the entries that were not used for longest until the rest keeps to the bound. keep
// stays.
func (c *Cache) trim(keep string) {
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
			if time.Since(info.ModTime()) > abandoned {
				_ = os.Remove(filepath.Join(c.dir, file.Name()))
			}
			continue
		}
		if name, err := hex.DecodeString(file.Name()); err != nil || len(name) != len(key{}) {
			continue // not ours
		}
		entries = append(entries, info)
		total += info.Size()
	}
	if c.max < 0 || total <= c.max {
		return
	}
	slices.SortFunc(entries, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range entries {
		path := filepath.Join(c.dir, info.Name())
		if total <= c.max || path == keep {
			continue
		}
		if err := os.Remove(path); err == nil {
			c.logger.Debug("compile cache entry removed for space", "entry", path)
		}
		total -= info.Size()
	}
}
