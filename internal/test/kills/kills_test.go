//go:build unix

package kills

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/prochost"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

func TestMain(m *testing.M) {
	plugintest.PlainCode()
	h, here, err := prochost.FromEnviron(os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if here {
		os.Exit(host(h))
	}
	os.Exit(m.Run())
}

// meshes contains the replicas and logical devices of a run on eight devices. hostCounts contains
// the numbers of hosts.
var (
	meshes     = [][2]int{{4, 2}, {8, 1}, {2, 4}, {1, 8}}
	hostCounts = []int{1, 2, 4, 8}
)

// number returns the integer value of an environment variable, or a default value.
func number(t *testing.T, name string, otherwise int) int {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

// TestRunsAreKilledAndLoseNothing kills runs until the requested number of lives had a fault. Each
// completed run must have the same losses, examples and checkpoint as an undisturbed run.
func TestRunsAreKilledAndLoseNothing(t *testing.T) {
	kills, seed := number(t, "TPUSTRATEGY_KILLS", 5), number(t, "TPUSTRATEGY_KILLS_SEED", 1)
	base := plugintest.System(t, 8)
	sockets, err := os.MkdirTemp("", "kills-")
	require.NoError(t, err)
	defer os.RemoveAll(sockets)
	machine, err := prochost.Listen(base, "unix", filepath.Join(sockets, "machine"), prochost.Options{Patience: patience})
	require.NoError(t, err)
	defer func() { require.NoError(t, machine.Close()) }()
	small := t.TempDir()
	all := &campaign{t: t, machine: machine, chance: rand.New(rand.NewPCG(uint64(seed), 17)), counts: map[string]int{},
		tmpfs: mountSmall(t, small)}
	wholes := map[plan]*outcome{}
	whole := func(p plan) *outcome {
		if !p.dataset {
			p.hosts = 1 // the number of hosts does not affect the rows of a replica
		}
		p.saving = inStep
		if wholes[p] == nil {
			dir := t.TempDir()
			l := begin(t, machine, fmt.Sprintf("whole %v", p), p.hosts, p.job(dir))
			require.Empty(t, l.end(time.Minute), "%v", l)
			require.Equal(t, "done", l.hosts[0].last(), "%v", l)
			wholes[p] = read(t, dir)
			wholes[p].complete(t)
		}
		return wholes[p]
	}
	start, lives, harmed := time.Now(), 0, 0
	for run := 0; harmed < kills; run++ {
		c := *all
		c.dir = filepath.Join(small, fmt.Sprint(run))
		if !c.tmpfs || run%5 > 1 {
			c.dir, c.tmpfs = filepath.Join(t.TempDir(), fmt.Sprint(run)), false
		}
		require.NoError(t, os.Mkdir(c.dir, 0o755))
		// The first plan is also the plan of the undisturbed run. If the dataset is sharded over
		// hosts, the number of hosts determines the rows of each replica and therefore the order of
		// summation.
		first := plan{mesh: meshes[c.chance.IntN(len(meshes))], hosts: c.hosts(), dataset: run%2 == 1}
		first.saving = []saving{inStep, background, toStore}[run%3]
		c.saving = first.saving
		changing := run%4 > 1
		for through := false; !through && !c.failed; lives++ {
			p := first
			if changing {
				p.mesh = meshes[c.chance.IntN(len(meshes))]
			}
			if changing || !p.dataset {
				p.hosts = c.hosts()
			}
			j := p.job(c.dir)
			j.Pause = time.Duration(c.chance.IntN(4)) * time.Millisecond
			var h harm // the last life has no fault
			if harmed < kills {
				h = c.harm(p.hosts)
			}
			through = c.live(fmt.Sprintf("run %d, life %d, %v", run, lives, p), p.hosts, j, h)
			harmed = 0
			for _, h := range harms {
				harmed += all.counts[h.name]
			}
		}
		if c.failed {
			return
		}
		got := read(t, c.dir)
		got.complete(t)
		got.tidy(t)
		got.compare(t, whole(first), !changing)
		require.NoError(t, os.RemoveAll(c.dir))
		if os.Getenv("TPUSTRATEGY_KILLS") != "" {
			fmt.Printf("%v: run %d is through after %d lives; %d harmed\n", time.Since(start).Round(time.Second), run, lives,
				harmed)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all.counts)) {
		t.Logf("%5d %s", all.counts[name], name)
	}
	t.Logf("%d harmed of %d lives in %v", harmed, lives, time.Since(start).Round(time.Second))
}

// plan contains the options of the hosts from a start to their exit.
type plan struct {
	mesh    [2]int
	hosts   int
	dataset bool
	saving  saving
}

func (p plan) String() string {
	of := "batches"
	if p.dataset {
		of = "a dataset"
	}
	return fmt.Sprintf("%d hosts, %d x %d, %s, %s", p.hosts, p.mesh[0], p.mesh[1], of, p.saving)
}

func (p plan) job(dir string) job {
	return job{Directory: dir, Replicas: p.mesh[0], Logical: p.mesh[1], Dataset: p.dataset, Saving: p.saving}
}

// hosts returns a random number of hosts.
func (c *campaign) hosts() int { return hostCounts[c.chance.IntN(len(hostCounts))] }

// harm returns a random fault.
func (c *campaign) harm(hosts int) harm {
	for {
		h := harms[c.chance.IntN(len(harms))]
		if c.chance.IntN(5) == 0 {
			h = harms[slices.IndexFunc(harms, func(h harm) bool { return h.at == "save" })]
		}
		if h.needs == "others" && hosts == 1 || h.needs == "tmpfs" && !c.tmpfs || h.needs == "store" && c.saving != toStore {
			continue
		}
		return h
	}
}

// outcome contains the files and values that a run has written.
type outcome struct {
	table   map[string][]float64 // values by column
	files   []string
	tensors map[string]string // of the last checkpoint, by path
}

// read reads the outcome of a run.
func read(t *testing.T, dir string) *outcome {
	t.Helper()
	o := &outcome{table: map[string][]float64{}}
	text, err := os.ReadFile(filepath.Join(dir, "table.csv"))
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\r\n")
	columns := strings.Split(lines[0], ",")
	for _, line := range lines[1:] {
		for i, cell := range strings.Split(line, ",") {
			v, err := strconv.ParseFloat(cell, 64)
			require.NoError(t, err, "%s", line)
			o.table[columns[i]] = append(o.table[columns[i]], v)
		}
	}
	checkpoints := filepath.Join(dir, "checkpoints")
	require.NoError(t, filepath.WalkDir(checkpoints, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(checkpoints, path)
			o.files = append(o.files, name)
		}
		return err
	}))
	opened, err := checkpoint.OpenManager(t.Context(), checkpoints, checkpoint.ManagerOptions{})
	require.NoError(t, err)
	last, err := opened.Open(t.Context(), steps)
	require.NoError(t, err)
	defer last.Close()
	o.tensors = map[string]string{}
	for _, v := range last.Variables() {
		value, err := last.Tensor(t.Context(), v.Path)
		require.NoError(t, err)
		o.tensors[v.Path] = fmt.Sprint(value.Shape(), value.Value())
	}
	return o
}

var (
	wholeFile = regexp.MustCompile(`^step-\d{10}/checkpoint\.json$`)
	shardFile = regexp.MustCompile(`^step-\d{10}/([0-9a-z-]+)/host-\d{4}\.(json|safetensors)$`)
)

// tidy checks that the last checkpoints are complete and that there are no other files.
func (o *outcome) tidy(t *testing.T) {
	t.Helper()
	manifests, saves := map[string]bool{}, map[string]bool{}
	for _, name := range o.files {
		step, _, _ := strings.Cut(name, "/")
		switch m := shardFile.FindStringSubmatch(name); {
		case name == "owner.json":
		case m != nil:
			saves[step+" "+m[1]] = true
		case wholeFile.MatchString(name):
			manifests[step] = true
		default:
			t.Errorf("a leftover: %s of %v", name, o.files)
		}
	}
	assert.Len(t, manifests, keep, "%v", o.files)
	assert.Len(t, saves, keep, "%v", o.files)
}

// complete checks that the run contains each step once, and each example once per pass.
func (o *outcome) complete(t *testing.T) {
	t.Helper()
	require.Len(t, o.table["step"], steps)
	const n = float64(examples)
	for pass := range passes {
		sum, squares := 0.0, 0.0
		for k := pass * steps / passes; k < (pass+1)*steps/passes; k++ {
			require.Equal(t, float64(k+1), o.table["step"][k])
			sum, squares = sum+o.table["examples"][k], squares+o.table["squares"][k]
		}
		require.Equal(t, n*(n+1)/2, sum, "the examples of pass %d", pass+1)
		require.Equal(t, n*(n+1)*(2*n+1)/6, squares, "the examples of pass %d", pass+1)
	}
}

// compare compares a run with an undisturbed run. If same is true, all lives used one mesh, and the
// values must be bitwise equal.
func (o *outcome) compare(t *testing.T, want *outcome, same bool) {
	t.Helper()
	for _, name := range []string{"step", "examples", "squares"} {
		require.Equal(t, want.table[name], o.table[name], name)
	}
	if same {
		require.Equal(t, want.table["loss"], o.table["loss"])
		require.Equal(t, want.tensors, o.tensors, "the last checkpoint")
		return
	}
	for i, loss := range o.table["loss"] {
		require.InDelta(t, 1, loss/want.table["loss"][i], 1e-3, "the loss of step %d", i+1)
	}
}
