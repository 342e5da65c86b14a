package cache_test

import (
	"os"
	"testing"

	"tpustrategy/internal/plugintest"
)

func TestMain(m *testing.M) { os.Exit(plugintest.OwnHome(m.Run)) }
