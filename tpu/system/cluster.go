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

// resolveCluster returns Options.Cluster, or the result of Options.Resolver.
func (s *starter) resolveCluster(ctx context.Context) (*clusterresolver.Cluster, error) {
	switch {
	case s.opts.Cluster != nil && s.opts.Resolver != nil:
		return nil, &errkind.Fault{Op: "options", Reason: "Cluster and Resolver are both set", Hint: "set only one of them",
			Class: errkind.ValueError}
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

// checkEnvironment compares the environment with the metadata server and logs the findings. Resolvers
// check only the sources that they use; this check also covers a cluster from another source.
func (s *starter) checkEnvironment(ctx context.Context) ([]clusterresolver.Finding, error) {
	env, err := clusterresolver.ReadEnvironment(getenvOrDefault(s.opts))
	if err != nil {
		return nil, err
	}
	var md clusterresolver.Metadata
	if s.opts.Metadata != nil && !env.SkipMetadata {
		var metadataErr *clusterresolver.MetadataError
		switch md, err = s.opts.Metadata.Read(ctx); {
		case err == nil || errors.Is(err, clusterresolver.ErrNotDetected):
		case errors.As(err, &metadataErr) && ctx.Err() == nil && len(env.Hostnames)+len(env.ProcessAddresses) > 0:
			s.logger.Warn(
				"system: cannot compare the environment with the metadata server; using the processes of the environment", "error",
				err)
		default:
			return nil, err
		}
	}
	var failures []clusterresolver.Finding
	findings := clusterresolver.Check(env, md)
	for _, f := range s.cluster.Findings {
		if !slices.Contains(findings, f) { // the resolver uses more sources than this check
			s.logger.Warn("system: environment", "finding", f.String())
		}
	}
	for _, f := range findings {
		s.logger.Warn("system: environment", "finding", f.String())
		if f.Severity == clusterresolver.SeverityError {
			failures = append(failures, f)
		}
	}
	if len(failures) > 0 && !s.opts.AllowFindings {
		return findings, &clusterresolver.CheckError{Resolver: s.cluster.Source, Findings: failures}
	}
	return findings, nil
}

// workers returns the tasks of the cluster that have devices, in order. These are the tasks of the
// job "worker" or, if the job does not exist, the tasks of this process's job.
func (s *starter) workers() []Process {
	if s.cluster == nil {
		return nil
	}
	for _, job := range []string{clusterresolver.JobWorker, s.cluster.Task.Type} {
		tasks, _ := s.cluster.Spec.Tasks(job) // an unknown job has no tasks
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

// numProcesses returns the number of processes that the cluster specifies for all slices, or 0 if
// the number is unknown.
func (s *starter) numProcesses() int {
	n := len(s.workers())
	if n > 0 {
		_, n = s.cluster.TPU.Multislice.GlobalRank(0, n)
	}
	return n
}

func (s *starter) numOtherWorkers() int { return max(0, len(s.workers())-1) }

// processAt returns the process with the given index.
func (s *starter) processAt(process int) Process {
	if workers := s.workers(); process < len(workers) {
		return workers[process]
	}
	return Process{Task: clusterresolver.Task{Type: clusterresolver.JobWorker, ID: process}}
}

// ErrCount is matched by errors for a number of devices, chips or processes that differs from the
// cluster. The message contains both numbers.
var ErrCount = errkind.New(errkind.RuntimeError, "the number differs from the cluster")

// countError returns an error that matches ErrCount, for a number that differs from the cluster's
// number. got was found, such as 4 "devices", and want is specified by source.
func countError(got int, unit, source string, want int, hint string) error {
	return &errkind.Fault{Op: fmt.Sprintf("found %d %s, but %s specifies %d", got, unit, source, want), Match: ErrCount,
		Hint: hint}
}

// checkCounts compares the number of processes, chips and devices with the numbers in the cluster.
// If there is no cluster, it returns nil.
func (s *starter) checkCounts(sys *System) error {
	if s.cluster == nil {
		return nil
	}
	source := "the cluster"
	if s.cluster.Source != "" {
		source += " of " + s.cluster.Source
	}
	if want := s.numProcesses(); want > 0 && want != sys.NumProcesses() {
		return countError(sys.NumProcesses(), "processes", source, want,
			"start one process on each host, and check that all have the environment variables of the slice")
	}
	if err := s.checkChips(sys, source); err != nil {
		return err
	}
	if workers := s.workers(); len(workers) > 1 {
		process, _ := s.cluster.TPU.Multislice.GlobalRank(s.cluster.Task.ID, len(workers))
		if process != sys.process && s.cluster.Task.IsKnown() {
			s.logger.Warn("system: the runtime's process index differs from the task index",
				"task", s.cluster.Task.String(), "process", sys.process)
		}
	}
	return nil
}

// checkChips compares the chips and devices of this process with the cluster. If the expected
// number of devices was only inferred from the accelerator type, a difference is logged instead of
// returned, because the existing devices are usable.
func (s *starter) checkChips(sys *System, source string) error {
	const hint = "check TPU_VISIBLE_CHIPS and TPU_CHIPS_PER_PROCESS_BOUNDS, and check the host for a failed chip"
	devices, chips := 0, map[[3]int]bool{}
	for _, id := range sys.topology.DeviceIDs()[sys.process] {
		if at, ok := sys.topology.CoordinatesOfDevice(id); ok && sys.Addressable(id) {
			devices++
			chips[[3]int(at[:3])] = true
		}
	}
	bounds := s.cluster.TPU.ChipsPerProcess
	want := bounds[0] * bounds[1] * bounds[2]
	if s.cluster.TPU.VisibleChips != nil {
		want = len(s.cluster.TPU.VisibleChips)
	}
	if want > 0 && want != len(chips) {
		return countError(len(chips), "chips of this process", source, want, hint)
	}
	want = s.cluster.NumAccelerators
	switch {
	case want == 0 || want == devices:
	case s.cluster.AcceleratorsInferred:
		s.logger.Warn("system: the number of devices differs from the accelerator type", "devices", devices, "expected", want,
			"accelerator_type", s.cluster.TPU.AcceleratorType)
	default:
		return countError(devices, "devices of this process", source, want, hint)
	}
	return nil
}

func deviceDescriptions(devices []*pjrt.Device) []*pjrt.DeviceDescription {
	out := make([]*pjrt.DeviceDescription, len(devices))
	for i, device := range devices {
		out[i] = &device.DeviceDescription
	}
	return out
}
