package gomlxtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/gomlxtest"
	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/lowering/backend"
)

func ours(t testing.TB) *backend.Backend {
	t.Helper()
	b, err := backend.New(plugintest.System(t, 8).Client(), backend.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func TestSPMD(t *testing.T)         { gomlxtest.SPMD(t, ours(t)) }
func TestAutoSharding(t *testing.T) { gomlxtest.AutoSharding(t, ours(t)) }
func TestRefused(t *testing.T)      { gomlxtest.Refused(t, ours(t)) }
