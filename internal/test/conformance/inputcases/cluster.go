package inputcases

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

// Cluster is the number of hosts and replicas of a case.
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

// Outcome is the result of a run: the combined steps of all hosts, or an error.
type Outcome struct {
	Steps [][]input.Element
	Spec  input.Spec
	Err   error
}

// RunCluster runs all hosts of a cluster concurrently. limit is the maximum number of steps. If
// limit is negative, the number of steps is not limited. Hosts that vote wait for each other.
func RunCluster(t *testing.T, ds input.Dataset, cl Cluster, opts input.Options, limit int) Outcome {
	t.Helper()
	return RunHosts(t, cl, opts, limit, func(o input.Options) (*input.DistributedDataset,
		error) {
		return input.Distribute(ds, o)
	})
}

// RunHosts is like [RunCluster], but open creates the dataset of each host.
func RunHosts(t *testing.T, cl Cluster, opts input.Options, limit int,
	open func(input.Options) (*input.DistributedDataset, error)) Outcome {
	t.Helper()
	opts.Replicas, opts.Processes = cl.Replicas, cl.Hosts
	votes := newVote(cl.Hosts)
	opts.AnyProcess = votes.any
	parts := make([]Outcome, cl.Hosts)
	made := make([]*input.DistributedDataset, cl.Hosts)
	for h := range parts {
		o := opts
		o.Process = h
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

// vote implements a vote between hosts: each host waits until all hosts have voted.
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
