// Package inputcases runs recorded cases of TensorFlow's input distribution on package
// input: splitting and rebatching, functions for each host, auto-sharding. It needs no
// plugin, so that both the tests of package input and the whole conformance run use it.
package inputcases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

// recorded is one run of TensorFlow: what went in and what came out.
type recorded struct {
	Section  string          `json:"section"`
	Name     string          `json:"name"`
	Strategy string          `json:"strategy"`
	Inputs   inputs          `json:"inputs"`
	Outputs  json.RawMessage `json:"outputs"`
}

// inputs are the inputs that cases of input, rebatching and sharding have. Absent ones are nil.
type inputs struct {
	Range           *int      `json:"range"`
	GlobalBatch     *int      `json:"global_batch"`
	Batch           *int      `json:"batch"`
	PerReplicaBatch *int      `json:"per_replica_batch"`
	DropRemainder   bool      `json:"drop_remainder"`
	AutoShard       string    `json:"auto_shard"`
	Policy          string    `json:"policy"`
	Elements        [][]int32 `json:"elements"`
	Files           *int      `json:"files"`
	Lines           *int      `json:"lines"`
	NumReplicas     *int      `json:"num_replicas"`
	BatchSizes      []int     `json:"batch_sizes"`
	NumWorkers      *int      `json:"num_workers"`
	ReplicasEach    int       `json:"num_replicas_per_worker"`
	WorkerIndex     int       `json:"worker_index"`
}

// Run runs one case, given as it is recorded.
func Run(t *testing.T, raw json.RawMessage) {
	var c recorded
	require.NoError(t, json.Unmarshal(raw, &c))
	runGolden(t, c)
}

// Cluster is the shape a case runs on.
type Cluster struct{ Hosts, Replicas int }

var workersText = regexp.MustCompile(`^(\d+) workers?, (\d+) replicas?$`)

func clusterOf(t *testing.T, text string) Cluster {
	if m := workersText.FindStringSubmatch(text); m != nil {
		return Cluster{atoi(m[1]), atoi(m[2])}
	}
	if text == "-" {
		return Cluster{1, 1}
	}
	i := strings.LastIndexByte(text, '-')
	n, err := strconv.Atoi(text[i+1:])
	require.NoError(t, err, "strategy %q", text)
	return Cluster{1, n}
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

var policyText = regexp.MustCompile(`\bpolicy ([A-Z]+)\b`)

// policyOf finds the policy in the inputs, or in the name where cases keep it there.
func policyOf(t *testing.T, c recorded) input.Policy {
	text := c.Inputs.Policy + c.Inputs.AutoShard
	if m := policyText.FindStringSubmatch(c.Name); text == "" && m != nil {
		text = m[1]
	}
	return policyNamed(t, text)
}

func policyNamed(t *testing.T, text string) input.Policy {
	p, ok := map[string]input.Policy{"": input.Auto, "OFF": input.Off, "AUTO": input.Auto, "FILE": input.File, "DATA": input.Data, "HINT": input.Hint}[text]
	require.True(t, ok, "policy %q", text)
	return p
}

func runGolden(t *testing.T, c recorded) {
	in, cl := c.Inputs, clusterOf(t, c.Strategy)
	opts := input.Options{Policy: policyOf(t, c), HostPipelines: strings.HasPrefix(c.Strategy, "tpu")}
	switch {
	case in.NumReplicas != nil:
		runRebatch(t, c)
	case in.BatchSizes != nil:
		checkPieces(t, c, input.Range(*in.Range).Batch(*in.Batch, in.DropRemainder).RebatchSizes(in.BatchSizes))
	case in.NumWorkers != nil:
		sizes, err := input.BatchSizes(*in.GlobalBatch, *in.NumWorkers*in.ReplicasEach, *in.NumWorkers, in.WorkerIndex)
		require.NoError(t, err)
		text, err := json.Marshal(sizes)
		require.NoError(t, err)
		assert.JSONEq(t, string(c.Outputs), string(text))
	case in.PerReplicaBatch != nil:
		runFromFunction(t, c, cl)
	case in.Files != nil:
		ds := TextFiles(t, *in.Files, *in.Lines, strings.Contains(c.Name, "10*file+line")).Batch(*in.Batch, in.DropRemainder)
		checkSteps(t, c, RunCluster(t, ds, cl, opts, -1))
	case in.Range != nil:
		size := in.GlobalBatch
		if size == nil {
			size = in.Batch
		}
		require.NotNil(t, size, "inputs without a batch size")
		ds := input.Range(*in.Range).Batch(*size, in.DropRemainder)
		checkSteps(t, c, RunCluster(t, ds, cl, opts, -1))
	case in.Elements != nil:
		list := make([]input.Element, len(in.Elements))
		for i, v := range in.Elements {
			list[i] = input.Leaf(input.Vector(v...))
		}
		ds := Ragged(list)
		if strings.Contains(c.Name, "static length") {
			ds = input.FromElements(list...)
			var unbatched *input.NotBatchedError
			require.ErrorAs(t, RunCluster(t, ds, cl, opts, -1).Err, &unbatched, "a feature axis is never split")
			return
		}
		checkSteps(t, c, RunCluster(t, ds, cl, opts, -1))
	default:
		runNamed(t, c, cl, opts)
	}
}

// Outcome is what a run gave: the steps of all hosts put together, or an error.
type Outcome struct {
	Steps [][]input.Element
	Spec  input.Spec
	Err   error
}

// RunCluster runs all hosts of a cluster at the same time, in lock step where they vote. A negative limit is no limit.
func RunCluster(t *testing.T, ds input.Dataset, cl Cluster, opts input.Options, limit int) Outcome {
	t.Helper()
	return RunHosts(t, cl, opts, limit, func(o input.Options) (*input.Distributed, error) { return input.Distribute(ds, o) })
}

// RunHosts is RunCluster of what open makes on each host.
func RunHosts(t *testing.T, cl Cluster, opts input.Options, limit int, open func(input.Options) (*input.Distributed, error)) Outcome {
	t.Helper()
	opts.Replicas, opts.Hosts = cl.Replicas, cl.Hosts
	votes := newVote(cl.Hosts)
	opts.AnyHost = votes.any
	parts := make([]Outcome, cl.Hosts)
	made := make([]*input.Distributed, cl.Hosts)
	for h := range parts {
		o := opts
		o.HostIndex = h
		d, err := open(o)
		if err != nil {
			return Outcome{Err: err}
		}
		made[h], parts[h].Spec = d, d.Spec()
	}
	var wg sync.WaitGroup
	for h := range parts {
		wg.Go(func() {
			for step, err := range made[h].All(context.Background()) {
				if err != nil {
					parts[h].Err = err
					return
				}
				parts[h].Steps = append(parts[h].Steps, step.Replicas)
				if len(parts[h].Steps) == limit {
					return
				}
			}
		})
	}
	wg.Wait()
	all := parts[0]
	for _, p := range parts[1:] {
		require.Len(t, p.Steps, len(all.Steps), "hosts take different numbers of steps")
		for i := range p.Steps {
			all.Steps[i] = append(all.Steps[i], p.Steps[i]...)
		}
		all.Err = errors.Join(all.Err, p.Err)
	}
	return all
}

// vote is the exchange between hosts: everyone waits until all have voted.
type vote struct {
	mu      sync.Mutex
	all     *sync.Cond
	hosts   int
	count   int
	yes     bool
	round   int
	outcome bool
}

func newVote(hosts int) *vote {
	v := &vote{hosts: hosts}
	v.all = sync.NewCond(&v.mu)
	return v
}

func (v *vote) any(_ context.Context, mine bool) (bool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.yes = v.yes || mine
	v.count++
	round := v.round
	if v.count == v.hosts {
		v.outcome, v.yes, v.count = v.yes, false, 0
		v.round++
		v.all.Broadcast()
	}
	for v.round == round {
		v.all.Wait()
	}
	return v.outcome, nil
}

// checkSteps compares a run with the steps, spec or error of the case.
func checkSteps(t *testing.T, c recorded, got Outcome) {
	t.Helper()
	var want struct {
		Steps []json.RawMessage
		Spec  *string `json:"element_spec"`
		Error *struct{ Type, Message string }
	}
	if c.Outputs[0] == '[' {
		require.NoError(t, json.Unmarshal(c.Outputs, &want.Steps))
	} else {
		require.NoError(t, json.Unmarshal(c.Outputs, &want))
	}
	if want.Error != nil {
		checkError(t, want.Error.Type, want.Error.Message, got.Err)
		return
	}
	require.NoError(t, got.Err)
	require.Len(t, got.Steps, len(want.Steps))
	for i, step := range got.Steps {
		assert.JSONEq(t, string(want.Steps[i]), MarshalStep(t, step), "step %d", i)
	}
	if want.Spec != nil {
		assert.Equal(t, *want.Spec, specText(got.Spec, clusterOf(t, c.Strategy).Replicas))
	}
}

// checkError holds TensorFlow's error types against the ones that stand for them.
func checkError(t *testing.T, kind, message string, err error) {
	t.Helper()
	require.Error(t, err)
	var unbatched *input.NotBatchedError
	var few *input.TooFewFilesError
	var uneven *input.UnevenReplicasError
	switch {
	case kind == "IndexError":
		assert.ErrorAs(t, err, &unbatched)
	case kind == "NotFoundError":
		assert.ErrorIs(t, err, input.ErrNotShardable)
	case strings.HasPrefix(message, "Could not apply FILE based sharding"):
		assert.ErrorAs(t, err, &few)
	case kind == "NotImplementedError":
		assert.ErrorIs(t, err, errors.ErrUnsupported)
	case strings.Contains(message, "same number of replicas"):
		assert.ErrorAs(t, err, &uneven)
	case kind == "ValueError", kind == "InvalidArgumentError":
		assert.NotErrorIs(t, err, errors.ErrUnsupported, "a wrong argument, not something missing")
	default:
		t.Errorf("error type %s is not known to this test", kind)
	}
}

// MarshalStep writes a step in the notation of the cases: the values of the replicas at every leaf.
func MarshalStep(t *testing.T, replicas []input.Element) string {
	t.Helper()
	columns := map[string][]any{}
	for _, e := range replicas {
		for i, path := range e.Paths() {
			columns[path] = append(columns[path], Nested(e.Leaves()[i]))
		}
	}
	text := render(replicas[0], "", func(path string) any {
		if len(replicas) == 1 {
			return map[string]any{"Tensor": columns[path][0]}
		}
		return map[string]any{"PerReplica": columns[path]}
	})
	out, err := json.Marshal(text)
	require.NoError(t, err)
	return string(out)
}

func render(e input.Element, path string, leaf func(path string) any) any {
	if e.IsLeaf() {
		return leaf(path)
	}
	if keys := e.Keys(); keys != nil {
		out := map[string]any{}
		for i, k := range keys {
			out[k] = render(e.At(i), path+"."+k, leaf)
		}
		return out
	}
	out := []any{}
	for i := range e.Len() {
		out = append(out, render(e.At(i), fmt.Sprintf("%s[%d]", path, i), leaf))
	}
	return out
}

// Nested turns a tensor into lists of lists.
func Nested(x input.Tensor) any {
	var flat []any
	switch v := x.Flat().(type) {
	case []int64:
		flat = toAny(v)
	case []int32:
		flat = toAny(v)
	case []float32:
		flat = toAny(v)
	case []float64:
		flat = toAny(v)
	case []string:
		flat = toAny(v)
	default:
		panic(fmt.Sprintf("no notation for %v", x))
	}
	for axis := x.Rank() - 1; axis >= 1; axis-- {
		rest, size := []any{}, x.Dim(axis)
		rows := 1
		for i := range axis {
			rows *= x.Dim(i)
		}
		for i := range rows {
			rest = append(rest, flat[i*size:(i+1)*size])
		}
		flat = rest
	}
	if x.Rank() == 0 {
		return flat[0]
	}
	return flat
}

func toAny[T any](v []T) []any {
	out := make([]any, len(v))
	for i := range v {
		out[i] = v[i]
	}
	return out
}

// specText writes a spec as TensorFlow prints it.
func specText(spec input.Spec, replicas int) string {
	if !spec.IsLeaf() {
		var parts []string
		for i, keys := 0, spec.Keys(); i < spec.Len(); i++ {
			part := specText(spec.At(i), replicas)
			if keys != nil {
				part = "'" + keys[i] + "': " + part
			}
			parts = append(parts, part)
		}
		if spec.Keys() != nil {
			return "{" + strings.Join(parts, ", ") + "}"
		}
		return "(" + strings.Join(parts, ", ") + ")"
	}
	s := spec.Leaf()
	dims := make([]string, len(s.Dims))
	for i, d := range s.Dims {
		dims[i] = "None"
		if d >= 0 {
			dims[i] = strconv.Itoa(d)
		}
	}
	shape := strings.Join(dims, ", ")
	if len(dims) == 1 {
		shape += ","
	}
	one := fmt.Sprintf("TensorSpec(shape=(%s), dtype=tf.%s, name=None)", shape, s.Kind)
	if replicas == 1 {
		return one
	}
	return "PerReplicaSpec(" + strings.Join(strings.Split(strings.Repeat(one+"\n", replicas-1)+one, "\n"), ", ") + ")"
}

// TextFiles writes files of one number a line and reads them as float32.
func TextFiles(t *testing.T, files, lines int, tens bool) input.Dataset {
	t.Helper()
	dir, paths := t.TempDir(), []string(nil)
	for f := range files {
		base := f * lines
		if tens {
			base = 10 * f
		}
		var text strings.Builder
		for l := range lines {
			fmt.Fprintln(&text, base+l)
		}
		path := filepath.Join(dir, fmt.Sprintf("%03d.txt", f))
		require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o600))
		paths = append(paths, path)
	}
	return input.Lines(paths, input.FileOptions{}).Map(ParseNumber, input.MapOptions{Spec: input.Leaf(input.TensorSpec{Kind: input.Float32})})
}

// ParseNumber maps a line of text to its number, a float32.
func ParseNumber(_ context.Context, e input.Element) (input.Element, error) {
	text, err := input.Flat[string](e.Leaf())
	if err != nil {
		return input.Element{}, err
	}
	v, err := strconv.ParseFloat(text[0], 32)
	return input.Leaf(input.Scalar(float32(v))), err
}
