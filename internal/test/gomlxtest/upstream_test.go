//go:build upstream

package gomlxtest_test

import (
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/compute/xla"
	"github.com/gomlx/go-xla/pjrt"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/gomlxtest"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

func upstream(t testing.TB) compute.Backend {
	b, err := xla.NewWithOptions(plugintest.Path(t, "cpu"), pjrt.NamedValuesMap{"cpu_device_count": int64(8)})
	require.NoError(t, err)
	return b
}

func TestUpstreamSPMD(t *testing.T)         { gomlxtest.SPMD(t, upstream(t)) }
func TestUpstreamAutoSharding(t *testing.T) { gomlxtest.AutoSharding(t, upstream(t)) }
func TestUpstreamRefused(t *testing.T)      { gomlxtest.Refused(t, upstream(t)) }
func TestUpstreamTrainer(t *testing.T)      { gomlxtest.Trainer(t, upstream(t)) }
