package system

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	clusterresolver "tpustrategy/cluster_resolver"
	"tpustrategy/pjrt"
)

// resolve finds out which hosts there are, if the options say how.
func (s *starter) resolve(ctx context.Context) (*clusterresolver.Cluster, error) {
	switch {
	case s.opts.Cluster != nil && s.opts.Resolver != nil:
		return nil, errors.New("Options.Cluster and Options.Resolver are both set; give one")
	case s.opts.Cluster != nil:
		c := s.opts.Cluster.Clone()
		return &c, nil
	}
	c, err := s.opts.Resolver.Resolve(ctx)
	if err != nil {
		return nil, fmt.Errorf("resolver %s: %w", s.opts.Resolver.Name(), err)
	}
	return &c, nil
}

// checkEnvironment holds the environment against the metadata: resolvers do so with
// what they read, this does it for a cluster from elsewhere too.
func (s *starter) checkEnvironment(ctx context.Context) ([]clusterresolver.Finding, error) {
	env, err := clusterresolver.ReadEnvironment(getenvOf(s.opts))
	if err != nil {
		return nil, err
	}
	var md clusterresolver.Metadata
	if s.opts.Metadata != nil && !env.SkipMetadata {
		if md, err = s.opts.Metadata.Read(ctx); err != nil && !errors.Is(err, clusterresolver.ErrNotDetected) {
			return nil, err
		}
	}
	var refused []clusterresolver.Finding
	findings := clusterresolver.Check(env, md)
	for _, f := range s.cluster.Findings {
		if !slices.Contains(findings, f) { // the resolver has asked more than this check
			s.logger.Warn("system: environment", "finding", f.String())
		}
	}
	for _, f := range findings {
		s.logger.Warn("system: environment", "finding", f.String())
		if f.Severity == clusterresolver.SeverityError {
			refused = append(refused, f)
		}
	}
	if len(refused) > 0 && !s.opts.AllowFindings {
		return findings, &clusterresolver.CheckError{Resolver: s.cluster.Source, Findings: refused}
	}
	return findings, nil
}

func getenvOf(o Options) func(string) string {
	if o.Getenv != nil {
		return o.Getenv
	}
	return os.Getenv
}

// workers are the cluster's tasks that have devices, in order: the workers, or, in
// a cluster without any, the tasks of this process's own job.
func (s *starter) workers() []Host {
	if s.cluster == nil {
		return nil
	}
	for _, job := range []string{clusterresolver.JobWorker, s.cluster.Task.Type} {
		// An unknown job has no tasks.
		tasks, _ := s.cluster.Spec.Tasks(job)
		var hosts []Host
		for _, t := range tasks {
			hosts = append(hosts, Host{Task: clusterresolver.Task{Type: job, ID: t.Index}, Address: t.Address})
		}
		if hosts != nil {
			return hosts
		}
	}
	return nil
}

// processes is how many processes there should be over all slices, 0 if not known.
func (s *starter) processes() int {
	n := len(s.workers())
	if n > 0 {
		_, n = s.cluster.TPU.Multislice.Global(0, n)
	}
	return n
}

func (s *starter) others() int { return max(0, len(s.workers())-1) }

// host is a process by its number.
func (s *starter) host(process int) Host {
	if workers := s.workers(); process < len(workers) {
		return workers[process]
	}
	return Host{Task: clusterresolver.Task{Type: clusterresolver.JobWorker, ID: process}}
}

// probeTimeout bounds the question which hosts are missing, once a start-up has
// failed.
const probeTimeout = 2 * time.Second

// unreachable are the other workers that take no connection at their addresses.
// The TPU runtime listens there while it waits for the slice.
func (s *starter) unreachable(ctx context.Context) []Host {
	dial := s.opts.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	workers := s.workers()
	errs := make([]error, len(workers))
	var wg sync.WaitGroup
	for i, w := range workers {
		if w.Task == s.cluster.Task {
			continue
		}
		wg.Go(func() {
			conn, err := dial(ctx, "tcp", w.Address)
			if errs[i] = err; err == nil {
				_ = conn.Close()
			}
		})
	}
	wg.Wait()
	var missing []Host
	for i, w := range workers {
		if errs[i] != nil {
			missing = append(missing, Host{Task: w.Task, Address: w.Address, Err: errs[i]})
		}
	}
	return missing
}

// CountError is another number of devices or processes than the cluster promises.
type CountError struct {
	// What is counted: "processes" or "devices of this process".
	What       string
	Seen, Want int
	// Source says where the expectation comes from.
	Source string
	Hint   string
}

func (e *CountError) Error() string {
	return fmt.Sprintf("%d %s, but %s says %d; %s", e.Seen, e.What, e.Source, e.Want, e.Hint)
}

// checkCounts holds the devices against the cluster.
func (s *starter) checkCounts(sys *System) error {
	if s.cluster == nil {
		return nil
	}
	source := "the cluster"
	if s.cluster.Source != "" {
		source += " of " + s.cluster.Source
	}
	if want := s.processes(); want > 0 && want != sys.NumProcesses() {
		return &CountError{What: "processes", Seen: sys.NumProcesses(), Want: want, Source: source,
			Hint: "start one process on each host, and see that all have the slice's own variables"}
	}
	if want := s.cluster.NumAccelerators; want > 0 {
		seen := 0
		for _, id := range sys.topology.DeviceIDs()[sys.process] {
			if sys.Addressable(id) {
				seen++
			}
		}
		if seen != want {
			return &CountError{What: "devices of this process", Seen: seen, Want: want, Source: source,
				Hint: "see TPU_VISIBLE_CHIPS and TPU_CHIPS_PER_PROCESS_BOUNDS, and the machine for a chip that failed"}
		}
	}
	if workers := s.workers(); len(workers) > 1 {
		at, _ := s.cluster.TPU.Multislice.Global(s.cluster.Task.ID, len(workers))
		if at != sys.process && s.cluster.Task.Known() {
			s.logger.Warn("system: the runtime numbers this process differently", "task", s.cluster.Task.String(), "process", sys.process)
		}
	}
	return nil
}

// descriptions are the devices as the topology is read from them.
func descriptions(devices []*pjrt.Device) []*pjrt.DeviceDescription {
	out := make([]*pjrt.DeviceDescription, len(devices))
	for i, device := range devices {
		out[i] = &device.DeviceDescription
	}
	return out
}
