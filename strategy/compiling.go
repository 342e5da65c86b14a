package strategy

import (
	"fmt"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/patience"
	"github.com/tpustrategy/tpustrategy/lowering/module"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Compilation describes a compilation that is under way, for [Options.Compiling].
type Compilation struct {
	// Name is the name of the step function.
	Name string
	// TextBytes is the size of the step's StableHLO text.
	TextBytes int
	// Replicas and LogicalDevices are the numbers that the step is compiled for.
	Replicas, LogicalDevices int
	// Passed is the time since the compiler began.
	Passed time.Duration
}

// String describes the compilation in one line, for a person.
func (c Compilation) String() string {
	size := fmt.Sprintf("%.1f kB", float64(c.TextBytes)/1e3)
	if c.TextBytes >= 1e6 {
		size = fmt.Sprintf("%.1f MB", float64(c.TextBytes)/1e6)
	}
	return fmt.Sprintf("compiling %s for %d x %d devices goes on: %s so far, %s of program",
		c.Name, c.Replicas, c.LogicalDevices, c.Passed.Round(time.Second), size)
}

// compiling says of a module's compilation that it goes on, until stop is called.
func (s *TPUStrategy) compiling(name string, m *module.Module, opts pjrt.CompileOptions) (stop func()) {
	say := s.opts.Compiling
	if say == nil && s.opts.Logger != nil {
		say = func(c Compilation) {
			s.opts.Logger.Info("strategy: a compilation goes on", "step", c.Name, "passed", c.Passed.Round(time.Second),
				"text_bytes", c.TextBytes, "replicas", c.Replicas, "logical_devices", c.LogicalDevices)
		}
	}
	if say == nil {
		return func() {}
	}
	devices := opts.Replicas * opts.Partitions
	c := Compilation{Name: name, TextBytes: len(m.Text), Replicas: max(devices/s.logicalDevices, 1), LogicalDevices: min(devices, s.logicalDevices)}
	return patience.Watch(func(passed time.Duration) {
		c.Passed = passed
		say(c)
	})
}
