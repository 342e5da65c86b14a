package system

import (
	"context"
	"errors"
	"fmt"
	"slices"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// resolve finds out which processes there are, if the options say how.
func (s *starter) resolve(ctx context.Context) (*clusterresolver.Cluster, error) {
	switch {
	case s.opts.Cluster != nil && s.opts.Resolver != nil:
		return nil, &errkind.Fault{Op: "options", Reason: "Cluster and Resolver are both set", Hint: "give one", Class: errkind.ValueError}
	case s.opts.Cluster != nil:
		c := s.opts.Cluster.Clone()
		return &c, nil
	}
	c, err := s.opts.Resolver.Resolve(ctx)
	if err != nil {
		return nil, &errkind.Fault{Op: "resolver", Subject: s.opts.Resolver.Name(), Err: err}
	}
	return &c, nil
}

// checkEnvironment holds the environment against the metadata: resolvers do so with what they read,
// this does it for a cluster from elsewhere too.
func (s *starter) checkEnvironment(ctx context.Context) ([]clusterresolver.Finding, error) {
	env, err := clusterresolver.ReadEnvironment(getenvOf(s.opts))
	if err != nil {
		return nil, err
	}
	var md clusterresolver.Metadata
	if s.opts.Metadata != nil && !env.SkipMetadata {
		var answer *clusterresolver.MetadataError
		switch md, err = s.opts.Metadata.Read(ctx); {
		case err == nil || errors.Is(err, clusterresolver.ErrNotDetected):
		case errors.As(err, &answer) && ctx.Err() == nil && len(env.Hostnames)+len(env.ProcessAddresses) > 0:
			s.logger.Warn("system: the environment names all processes, and is not held against the metadata", "error", err)
		default:
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

// workers are the cluster's tasks that have devices, in order: the workers, or, in a cluster
// without any, the tasks of this process's own job.
func (s *starter) workers() []Process {
	if s.cluster == nil {
		return nil
	}
	for _, job := range []string{clusterresolver.JobWorker, s.cluster.Task.Type} {
		// An unknown job has no tasks.
		tasks, _ := s.cluster.Spec.Tasks(job)
		var processes []Process
		for _, t := range tasks {
			processes = append(processes, Process{Task: clusterresolver.Task{Type: job, ID: t.Index}, Address: t.Address})
		}
		if processes != nil {
			return processes
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

// member returns the process of a number.
func (s *starter) member(process int) Process {
	if workers := s.workers(); process < len(workers) {
		return workers[process]
	}
	return Process{Task: clusterresolver.Task{Type: clusterresolver.JobWorker, ID: process}}
}

// ErrCount is matched by the error of more or fewer devices, chips or processes than the cluster
// promises. It has both numbers.
var ErrCount = errkind.New(errkind.RuntimeError, "another number than the cluster promises")

// miscounted is the error of what was seen, where the source of the cluster promises another number.
func miscounted(seen int, what, source string, want int, hint string) error {
	return &errkind.Fault{Op: fmt.Sprintf("%d %s, but %s says %d", seen, what, source, want), Match: ErrCount, Hint: hint}
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
		return miscounted(sys.NumProcesses(), "processes", source, want, "start one process on each host, and see that all have the slice's own variables")
	}
	if err := s.checkChips(sys, source); err != nil {
		return err
	}
	if workers := s.workers(); len(workers) > 1 {
		at, _ := s.cluster.TPU.Multislice.Global(s.cluster.Task.ID, len(workers))
		if at != sys.process && s.cluster.Task.Known() {
			s.logger.Warn("system: the runtime numbers this process differently", "task", s.cluster.Task.String(), "process", sys.process)
		}
	}
	return nil
}

// checkChips holds this process's devices against the chips and the devices that it was told of. A
// number that was only inferred, from the type of the accelerator, is a warning: the devices that
// are there are right.
func (s *starter) checkChips(sys *System, source string) error {
	const hint = "see TPU_VISIBLE_CHIPS and TPU_CHIPS_PER_PROCESS_BOUNDS, and the machine for a chip that failed"
	devices, chips := 0, map[[3]int]bool{}
	for _, id := range sys.topology.DeviceIDs()[sys.process] {
		if at, ok := sys.topology.CoordinatesOfDevice(id); ok && sys.Addressable(id) {
			devices++
			chips[[3]int(at[:3])] = true
		}
	}
	told := s.cluster.TPU.ChipsPerProcess
	want := told[0] * told[1] * told[2]
	if s.cluster.TPU.VisibleChips != nil {
		want = len(s.cluster.TPU.VisibleChips)
	}
	if want > 0 && want != len(chips) {
		return miscounted(len(chips), "chips of this process", source, want, hint)
	}
	want = s.cluster.NumAccelerators
	switch {
	case want == 0 || want == devices:
	case s.cluster.AcceleratorsInferred:
		s.logger.Warn("system: another number of devices than the accelerator type lets expect", "devices", devices, "expected", want,
			"accelerator_type", s.cluster.TPU.AcceleratorType)
	default:
		return miscounted(devices, "devices of this process", source, want, hint)
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
