package ahead

import (
	"context"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// cpuTopology matches a topology of the CPU plugin, such as "cpu:8".
var cpuTopology = regexp.MustCompile(`^cpu:([1-9][0-9]{0,3})$`)

// CPUDevices returns the number of devices of a CPU topology such as "cpu:8", or 0.
func CPUDevices(topology string) int {
	m := cpuTopology.FindStringSubmatch(topology)
	if m == nil {
		return 0
	}
	// The expression lets few digits through only.
	n, _ := strconv.Atoi(m[1])
	return n
}

// PluginKind returns the kind of plugin that a topology requires: "cpu", "tpu" or "cuda".
func PluginKind(topology string) string {
	switch {
	case CPUDevices(topology) > 0:
		return "cpu"
	case system.IsGPUName(topology):
		return "cuda"
	}
	return "tpu"
}

// CheckTopology returns an error for an invalid topology name. It does not open a plugin.
func CheckTopology(op, flag, name string) error {
	if CPUDevices(name) > 0 {
		return nil
	}
	if strings.HasPrefix(name, "cpu") {
		return UsageErrorf(op, "write cpu:8, with a number of devices from 1 to 9999", "%s %q", flag, name)
	}
	if err := system.CheckSliceName(name); err != nil {
		return NewUsageError(op, err)
	}
	return nil
}

// Describe describes a slice by name. If the plugin rejects the name, the error is a [*UsageError].
func Describe(ctx context.Context, name, plugin string) (*system.Slice, error) {
	slice, err := system.Describe(ctx, name, system.DescribeOptions{Plugin: plugin})
	if refused := (*pjrt.Error)(nil); errors.As(err, &refused) && refused.Code == pjrt.InvalidArgument {
		return nil, &UsageError{err}
	}
	return slice, err
}

// Open opens a strategy for a topology. plugin is the path of the plugin, or "" for the installed
// one. The caller must call done, which closes the strategy and the devices.
func Open(ctx context.Context, topology, plugin string, opts strategy.Options) (s *strategy.TPUStrategy, done func(),
	err error) {
	var under io.Closer
	if n := CPUDevices(topology); n > 0 {
		var sys *system.System
		if sys, err = system.Open(ctx, system.Options{CPUDevices: n, Plugin: plugin}); err != nil {
			return nil, nil, err
		}
		under = sys
		s, err = strategy.New(sys, opts)
	} else {
		var slice *system.Slice
		if slice, err = Describe(ctx, topology, plugin); err != nil {
			return nil, nil, err
		}
		under = slice
		s, err = strategy.NewAheadOfTime(slice, opts)
	}
	if err != nil {
		return nil, nil, errors.Join(err, under.Close())
	}
	return s, func() {
		_ = s.Close()
		_ = under.Close()
	}, nil
}
