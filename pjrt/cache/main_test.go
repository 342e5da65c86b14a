package cache_test

import (
	"os"
	"testing"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

func TestMain(m *testing.M) { os.Exit(plugintest.OwnHome(m.Run)) }
