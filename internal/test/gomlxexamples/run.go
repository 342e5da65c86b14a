package gomlxexamples

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/test/gomlxoverlay"
)

// module is the module of the examples.
const module = "github.com/gomlx/gomlx/examples"

// built contains the folder with the programs and data, and the module versions.
type built struct {
	dir string
	versions
}

// build builds the programs and creates the data in dir.
func build(ctx context.Context, dir string, which []program) (*built, error) {
	added := map[string]string{}
	for to, from := range map[string]string{"backends/default/tpustrategy.go": "backend.go.txt",
		"ml/train/tpustrategy.go": "record.go.txt"} {
		text, err := os.ReadFile(filepath.Join("testdata", "overlay", from))
		if err != nil {
			return nil, err
		}
		added[to] = string(text)
	}
	overlay, err := gomlxoverlay.Prepare(ctx, dir, gomlxoverlay.Options{
		Module: ".", Add: added,
		Edits: []gomlxoverlay.Edit{
			// TrainStep in the added file calls this function and writes the loss.
			{File: "ml/train/trainer.go", Old: "func (r *Trainer) TrainStep(batch Batch)",
				New: "func (r *Trainer) trainStep(batch Batch)"},
			// The run uses its own home directory.
			{File: "support/fsutil/fsutil.go", Old: "\tif dir[0] != '~' {\n\t\treturn dir, nil\n\t}\n",
				New: "\tif dir[0] != '~' {\n\t\treturn dir, nil\n\t}\n\tif home := os.Getenv(\"TPUSTRATEGY_EXAMPLES_HOME\"); " +
					"home != \"\" {\n\t\treturn home + dir[1:], nil\n\t}\n"},
			// Generated data does not match the checksum of the real data.
			{File: "support/fsutil/fsutil.go", Old: `if checkHash == "" {`,
				New: `if checkHash == "" || os.Getenv("TPUSTRATEGY_EXAMPLES_DATA") != "" {`},
		},
		Standard: []gomlxoverlay.Edit{
			// Replace seeds that are taken from the clock with a fixed seed.
			{File: "math/rand/rand.go", Old: "func NewSource(seed int64) Source {\n",
				New: "func NewSource(seed int64) Source {\n\tif seed > 1e15 {\n\t\tseed = 1\n\t}\n"},
		},
	})
	if err != nil {
		return nil, err
	}
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", module)
	version, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", module, err)
	}
	b := &built{dir: dir, versions: versions{examples: strings.TrimSpace(string(version)), gomlx: overlay.Version}}
	done := map[string]bool{}
	for _, p := range which {
		if done[p.main] {
			continue
		}
		done[p.main] = true
		if err := overlay.Build(ctx, "-o", b.binary(p), p.path()); err != nil {
			return nil, err
		}
	}
	maker := filepath.Join(dir, "bin", "makedata")
	if err := overlay.Build(ctx, "-o", maker, "./makedata"); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, maker, b.data("")).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("makedata: %w\n%s", err, out)
	}
	return b, nil
}

func (b *built) binary(p program) string {
	return filepath.Join(b.dir, "bin", strings.ReplaceAll(strings.TrimPrefix(p.main, "./"), "/", "_"))
}

func (b *built) data(name string) string { return filepath.Join(b.dir, "data", name) }

// devices is a kind of devices. Programs run on it by means of environment variables.
type devices struct {
	// name is the column name in the table. backend is the value of GOMLX_BACKEND.
	name, backend string
	// splits is true if the backend must split the data of a step and a second run must resume from
	// the checkpoint of the first.
	splits bool
}

// run contains the results of a run of a program.
type run struct {
	place
	output string
	losses []float64
	times  []time.Duration // since the start of the program
	wall   time.Duration
	points points
}

// limit is the timeout of a run.
const limit = 5 * time.Minute

// run runs a program up to the step total in the folder dir. The name is a prefix of the output
// files. If the program fails, the error contains the last part of its output.
func (b *built) run(ctx context.Context, p program, on devices, dir, name string, total int) (*run, error) {
	if err := os.MkdirAll(filepath.Join(dir, "home"), 0o755); err != nil {
		return nil, err
	}
	if p.home[0] != "" {
		// The program also writes its checkpoints to this folder. Therefore each run has its own
		// folder with links to the data files.
		if err := linked(b.data(p.home[0]), filepath.Join(dir, "home", p.home[1])); err != nil {
			return nil, err
		}
	}
	r := &run{place: place{data: b.data, dir: dir, total: total}}
	losses := filepath.Join(dir, name+"-losses.txt")
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.binary(p), p.arguments(r.place)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOMLX_BACKEND="+on.backend, "TPUSTRATEGY_EXAMPLES_HOME="+filepath.Join(dir, "home"),
		"TPUSTRATEGY_EXAMPLES_LOSSES="+losses, "TPUSTRATEGY_EXAMPLES_DATA=1", "GODEBUG=randautoseed=0",
		"TF_CPP_MIN_LOG_LEVEL=2")
	start := time.Now()
	out, err := cmd.CombinedOutput()
	r.wall, r.output = time.Since(start), string(out)
	if werr := os.WriteFile(filepath.Join(dir, name+"-output.txt"), out, 0o644); werr != nil {
		return nil, werr
	}
	if err != nil {
		return nil, fmt.Errorf("%s on %s: %w\n%s", p.name, on.name, err, tail(r.output, 3000))
	}
	if p.plots {
		// Read the points now, because a later run appends to the file.
		if r.points, err = readPoints(r.checkpoint()); err != nil {
			return nil, fmt.Errorf("%s on %s: no points of plots: %w", p.name, on.name, err)
		}
	}
	return r, r.read(losses)
}

// read reads the losses from the file that the program wrote.
func (r *run) read(name string) error {
	f, err := os.Open(name)
	if os.IsNotExist(err) {
		return nil // the program does not train
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		loss, at, _ := strings.Cut(lines.Text(), " ")
		value, err := strconv.ParseFloat(loss, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		nanoseconds, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.losses, r.times = append(r.losses, value), append(r.times, time.Duration(nanoseconds))
	}
	return nil
}

// rate returns the steps per second in the second half of the run.
func (r *run) rate() float64 {
	n := len(r.times)
	if n < 4 {
		return 0
	}
	return float64(n-1-n/2) / (r.times[n-1] - r.times[n/2]).Seconds()
}

func replaced(flag string, p place) string {
	return strings.NewReplacer("DATA", p.data(""), "DIR", p.dir, "TOTAL", strconv.Itoa(p.total)).Replace(flag)
}

// linked creates a folder with links to the files of another folder.
func linked(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Symlink(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}

func tail(s string, n int) string {
	if len(s) > n {
		return "..." + s[len(s)-n:]
	}
	return s
}
