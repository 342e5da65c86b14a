package strategy_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu"
)

func TestOptionsThatDoNotFitAreNamed(t *testing.T) {
	sys := plugintest.System(t, 8)
	twice, err := tpu.NewDeviceAssignment(sys.Topology(), [][]tpu.Coordinates{{{0, 0, 0, 0}}, {{0, 0, 0, 0}}})
	require.NoError(t, err)
	other, err := tpu.LogicalTopology(tpu.LogicalOptions{Devices: 16})
	require.NoError(t, err)
	elsewhere, err := tpu.BuildDeviceAssignment(other, tpu.AssignmentOptions{Replicas: 16})
	require.NoError(t, err)
	fits, err := tpu.BuildDeviceAssignment(sys.Topology(), tpu.AssignmentOptions{Replicas: 8})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		opts   strategy.Options
		option string
		want   string
	}{
		"more replicas than devices":          {strategy.Options{Replicas: 9}, "Replicas", "does not fit"},
		"negative replicas":                   {strategy.Options{Replicas: -1}, "Replicas", "both are counts"},
		"a block that does not divide":        {strategy.Options{LogicalDevices: 3}, "LogicalDevices", "no block of 3 devices divides the mesh"},
		"more logical devices than there are": {strategy.Options{LogicalDevices: 16}, "LogicalDevices", "no block of 16"},
		"a core assigned twice":               {strategy.Options{Assignment: twice}, "Assignment", "names a core twice"},
		"an assignment of another system":     {strategy.Options{Assignment: elsewhere}, "Assignment", "which the system does not have"},
		"an assignment and other replicas":    {strategy.Options{Assignment: fits, Replicas: 4}, "Replicas", "give one of them"},
		"a rule without a pattern":            {strategy.Options{Variables: logical.Rules{{Annotation: logical.SplitInto(1, 2)}}}, "Variables", "rule 0 has no pattern"},
		"an assignment and other devices":     {strategy.Options{Assignment: fits, LogicalDevices: 2}, "LogicalDevices", "give one of them"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := strategy.New(sys, c.opts)
			var option *strategy.OptionError
			require.True(t, errors.As(err, &option), "%v", err)
			assert.Equal(t, c.option, option.Option)
			assert.ErrorContains(t, err, c.want)
		})
	}
	strat, err := strategy.New(sys, strategy.Options{LogicalDevices: 4, Variables: logical.Rules{}})
	require.NoError(t, err)
	assert.Equal(t, 2, strat.NumReplicasInSync(), "as many replicas as fit")
	require.NoError(t, strat.Close())
}
