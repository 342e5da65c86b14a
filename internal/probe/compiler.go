package probe

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tpustrategy/tpustrategy/aot/plan"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/report/cost"
	"github.com/tpustrategy/tpustrategy/report/hlo"
	"github.com/tpustrategy/tpustrategy/report/memory"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Compiler predicts the time and memory of programs with a TPU compiler. It is safe for concurrent use.
type Compiler struct {
	// Worker compiles in separate processes.
	Worker *worker.Compiler
	// CacheDir is the folder for compiler results. If it is empty, results are not cached.
	CacheDir string
}

// DefaultCacheDir returns the folder for compiler results below cache, the user's cache directory.
// It returns "" if cache is empty.
func DefaultCacheDir(cache string) string {
	if cache == "" {
		return ""
	}
	return filepath.Join(cache, "tpustrategy", "plans")
}

// Program is a program for all devices of a slice, with its compile options.
type Program struct {
	Slice *system.Slice
	pjrt.Program
	Options pjrt.CompileOptions
	// Replicas and Logical are the numbers of replicas and logical devices of the step.
	Replicas, Logical int
	// Module is the traced step of the program, and Kernels are the functions in it whose operations
	// the predictions treat as one kernel; see [hlo.Parse].
	Module  *spmd.Module
	Kernels []string
}

// Probe partitions and schedules a program, and predicts its time and memory. It takes a few
// seconds, much less than [Compiler.Compile].
func (c *Compiler) Probe(ctx context.Context, p Program) (plan.Figures, error) {
	a, err := c.loadOrCompile(p, "probe", func() (cacheEntry, error) {
		module, err := c.Worker.CompileUntil(ctx, p.Slice.Description(), p.Program, p.Options, pjrt.AfterScheduler)
		return cacheEntry{Program: pjrt.Program{Code: module, Format: pjrt.FormatHLO}}, err
	})
	if err != nil {
		return plan.Figures{}, err
	}
	facts := p.Slice.Info()
	program, err := hlo.Parse(a.Program, p.Module, p.Kernels...)
	if err != nil {
		return plan.Figures{}, err
	}
	e, err := cost.Predict(program, facts.Name)
	if err != nil {
		return plan.Figures{}, err
	}
	if e.Unscheduled {
		return plan.Figures{}, &errkind.Fault{Op: "probe: predict", Match: hlo.ErrProgram,
			Reason: "the program is too large to compute its use of memory"}
	}
	return newFigures(e.Prediction, e.PeakBytes, facts.HBMBytes), nil
}

// Compile compiles a program completely, and predicts its time and memory. If the compiler rejects
// the program because it is too large, the returned Bytes exceeds Limit.
func (c *Compiler) Compile(ctx context.Context, p Program) (plan.Figures, error) {
	a, err := c.loadOrCompile(p, "compile", func() (cacheEntry, error) {
		x, err := c.Worker.CompileTopology(ctx, p.Slice.Description(), p.Program, p.Options)
		if refused := memory.RefusalOf(err); refused != nil {
			return cacheEntry{Refused: refused}, nil
		}
		if err != nil {
			return cacheEntry{}, err
		}
		defer x.Close()
		optimized, err := x.OptimizedProgram()
		if err != nil {
			return cacheEntry{}, err
		}
		memory, err := x.MemoryStats()
		return cacheEntry{Program: optimized, Memory: memory}, err
	})
	if err != nil {
		return plan.Figures{}, err
	}
	in := report.Input{Target: report.TargetOf(p.Slice.Info()), Replicas: p.Replicas, LogicalDevices: p.Logical,
		Refused: a.Refused}
	if a.Refused == nil {
		in.Program = pjrt.ExecutableRecord{Optimized: a.Program, Memory: a.Memory}.Executable()
		defer in.Program.Close()
	}
	r, err := report.New(in)
	if err != nil {
		return plan.Figures{}, err
	}
	if a.Refused != nil {
		return plan.Figures{Bytes: max(r.Memory.Needs, r.Memory.Limit+1), Limit: r.Memory.Limit}, nil
	}
	if r.Predicted == nil {
		return plan.Figures{}, &errkind.Fault{Op: "probe: predict", Subject: in.Target.Name,
			Reason: "the compiler gives no program to predict", Class: errkind.NotImplementedError}
	}
	return newFigures(r.Predicted, r.Memory.Needs, r.Memory.Limit), nil
}

func newFigures(p *cost.Prediction, bytes, limit int64) plan.Figures {
	return plan.Figures{Seconds: p.Seconds, Products: p.Products, Memory: p.Memory, Waits: p.Interconnect.Exposed +
		p.Network.Exposed, Bytes: bytes, Limit: limit}
}

// cacheEntry is a cached result of the compiler: a program or a rejection. Predictions are not cached.
// In an entry of a [CachingCompiler], the result is Record or Err, and Took is the compile time.
type cacheEntry struct {
	Program pjrt.Program
	Memory  pjrt.CompiledMemoryStats
	Refused *memory.Refusal
	Record  pjrt.ExecutableRecord
	Err     *pjrt.Error
	Took    time.Duration
}

// maxEntryBytes is the maximum size of a cache file in bytes.
const maxEntryBytes = 1 << 30

func (c *Compiler) loadOrCompile(p Program, kind string, compile func() (cacheEntry, error)) (cacheEntry, error) {
	facts := p.Slice.Info()
	return loadOrCompute(c.CacheDir, p.Program, p.Options, compile, kind, facts.Name, facts.Plugin)
}

// loadOrCompute returns the cached entry, or computes and stores it. It ignores errors of the
// cache. The cache key consists of the program, its options, the environment and keys.
func loadOrCompute(folder string, p pjrt.Program, opts pjrt.CompileOptions, compute func() (cacheEntry, error),
	keys ...string) (a cacheEntry, err error) {
	if folder == "" {
		return compute()
	}
	name, err := entryName(p, opts, keys)
	if err != nil {
		return a, err
	}
	path := filepath.Join(folder, name)
	if a, err = readEntry(path); err == nil {
		return a, nil
	}
	if a, err = compute(); err != nil {
		return a, err
	}
	if os.MkdirAll(folder, 0o700) == nil {
		_ = files.Replace(path, func(w io.Writer) error {
			z := gzip.NewWriter(w)
			return errors.Join(gob.NewEncoder(z).Encode(a), z.Close())
		})
	}
	return a, nil
}

func readEntry(path string) (a cacheEntry, err error) {
	data, err := files.ReadFile(path, maxEntryBytes)
	if err != nil {
		return a, err
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return a, err
	}
	err = gob.NewDecoder(io.LimitReader(z, maxEntryBytes)).Decode(&a)
	return a, cmp.Or(err, z.Close())
}

func entryName(p pjrt.Program, opts pjrt.CompileOptions, keys []string) (string, error) {
	options, err := json.Marshal(opts)
	if err != nil {
		return "", &errkind.Fault{Op: "probe: options", Err: err}
	}
	for _, variable := range []string{"LIBTPU_INIT_ARGS", "XLA_FLAGS"} {
		if value := os.Getenv(variable); value != "" {
			keys = append(keys, variable, value)
		}
	}
	h := sha256.New()
	for _, part := range append(keys, string(options), p.Format, string(p.Code)) {
		_ = binary.Write(h, binary.LittleEndian, uint32(len(part))) // a hash takes everything
		_, _ = io.WriteString(h, part)
	}
	return hex.EncodeToString(h.Sum(nil)) + ".answer", nil
}
