package savetest

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/storage/blobstore"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/internal/test/fakegcs"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/internal/test/faultproxy"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// bill counts requests in the classes of Google Cloud Storage's price list.
type bill struct {
	mu         sync.Mutex
	a, b, free int
}

func (c *bill) choose(r *http.Request, _ int) faultproxy.Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.Method == http.MethodDelete, r.URL.Query().Has("upload_id"): // chunks are of their upload
		c.free++
	case r.Method == http.MethodPost, strings.HasSuffix(r.URL.Path, "/o"): // an upload, a listing
		c.a++
	default:
		c.b++
	}
	return faultproxy.None
}

func (c *bill) take() (a, b, free int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, b, free = c.a, c.b, c.free
	c.a, c.b, c.free = 0, 0, 0
	return a, b, free
}

// TestASaveAndARestoreCostWhatTheGuideSays counts the requests of saves and restores of several
// hosts without faults.
func TestASaveAndARestoreCostWhatTheGuideSays(t *testing.T) {
	sys := plugintest.System(t, 4)
	for _, hosts := range []int{1, 2, 4} {
		server := fakegcs.Start(t, "bucket")
		c := &bill{}
		server.Proxy.Choose(c.choose)
		// What all have done is counted by process 0 between two barriers.
		count := func(ctx context.Context, s *strategy.TPUStrategy, what string, mostA, mostB int) error {
			if err := s.Barrier(ctx, what); err != nil {
				return err
			}
			if s.Process() == 0 {
				a, b, free := c.take()
				t.Logf("%d hosts, %s: %d of class A, %d of class B, %d free", hosts, what, a, b, free)
				assert.LessOrEqual(t, a, mostA, "%s, class A", what)
				assert.LessOrEqual(t, b, mostB, "%s, class B", what)
			}
			return s.Barrier(ctx, what+" counted")
		}
		strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: hosts},
			strategy.Options{Replicas: 4, LogicalDevices: 1},
			func(ctx context.Context, s *strategy.TPUStrategy) error {
				m, err := checkpoint.NewManager(ctx, server.Open(t, "bucket", blobstore.Options{}),
					checkpoint.ManagerOptions{Strategy: s, Retention: checkpoint.Retention{Last: 1}})
				if err != nil {
					return err
				}
				defer m.Close()
				if err := count(ctx, s, "new manager", hosts, 0); err != nil {
					return err
				}
				g, err := variables(ctx, s, 1)
				if err != nil {
					return err
				}
				const polls = 30 // of process 0, while it waits for the others
				for step := range int64(3) {
					if err := m.Save(ctx, step, g, checkpoint.SaveOptions{}); err != nil {
						return err
					}
					if err := m.Wait(ctx); err != nil {
						return err
					}
					mostA := 3*hosts + 1 + 1 // shards, parts and voids, the manifest, a listing
					if step == 0 {
						mostA += 2 // the owner's record, and a listing that looks for another run
					} else {
						mostA++ // the void of the checkpoint that is removed
					}
					if err := count(ctx, s, "save", mostA, 2*(hosts-1)+3+min(hosts-1, 1)*polls); err != nil {
						return err
					}
				}
				latest, err := m.Latest(ctx)
				if err != nil {
					return err
				}
				defer latest.Close()
				if err := latest.Restore(ctx, g, checkpoint.RestoreOptions{}); err != nil {
					return err
				}
				// On each host: the manifest, all parts, and of the tensor files what opens them and the
				// ranges of these three variables.
				return count(ctx, s, "restore", hosts, hosts*(1+2*hosts+len(forms)))
			}))
	}
}
