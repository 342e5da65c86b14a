package strategy

import (
	"errors"

	"github.com/tpustrategy/tpustrategy/report"
)

// Report returns what is known of the step before it runs: memory, shardings,
// collectives and the estimate of its cost. It is plain data and
// outlives the strategy. Reading it takes milliseconds.
func (c *Compiled) Report() (*report.Report, error) {
	if c.Program == nil {
		return nil, errors.New("strategy: the runtime gives no compiled program to report on")
	}
	s := c.program.function.strategy
	return report.New(report.Input{
		Step: c.Name, Target: s.reportTarget(), Replicas: s.replicas, LogicalDevices: s.perReplica,
		Program: c.Program, Module: c.Module, Variables: c.Variables,
		LoweringSeconds: c.Lowering.Seconds(), CompilingSeconds: c.Compiling.Seconds(),
	})
}

// reportTarget describes what the strategy compiles for.
func (s *TPUStrategy) reportTarget() report.Target {
	if s.slice != nil {
		return report.TargetOf(s.slice.Facts())
	}
	topology := s.sys.Topology()
	t := report.Target{Name: topology.Name(), Devices: topology.NumDevices(), Hosts: topology.NumTasks()}
	if t.Name == "" || s.sys.Platform() == "cpu" {
		t.Name = s.sys.Platform()
	}
	if client := s.sys.Client(); client != nil {
		t.Platform = client.PlatformVersion()
	}
	if s.devices[0] != nil {
		t.Kind = s.devices[0].Kind()
	}
	return t
}
