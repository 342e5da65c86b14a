package usercode_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/internal/usercode"
)

func TestFrames(t *testing.T) {
	const ours = "github.com/tpustrategy/tpustrategy/"
	for _, test := range []struct {
		function, file string
		library        bool
		at, name       string
	}{
		{"main.loss.func1", "/home/me/demo/main.go", false, "main.go", "main.loss.func1"},
		{"demo/model.(*Net).Loss", "/home/me/demo/model/net.go", false, "demo/model/net.go", "model.Net.Loss"},
		{"github.com/me/net%2ev2.Loss", "net.v2/a.go", false, "github.com/me/net.v2/a.go", "net.v2.Loss"},
		{"github.com/gomlx/gomlx/ml/layers.Dense", "/go/pkg/mod/github.com/gomlx/gomlx@v0.28.8/ml/layers/layers.go",
			true,
			"github.com/gomlx/gomlx/ml/layers/layers.go", "layers.Dense"},
		{"github.com/gomlx/gomlx/core/graph.Const[...]", "ops.go", true, "github.com/gomlx/gomlx/core/graph/ops.go",
			"graph.Const"},
		{ours + "loop.Layers", "loop/layers.go", true, ours + "loop/layers.go", "loop.Layers"},
		{ours + "lm/decoder.Config.Loss", "lm/decoder/model.go", false,
			ours + "lm/decoder/model.go", "decoder.Config.Loss"},
		{ours + "strategy_test.step", "strategy/step_test.go", false, ours + "strategy_test/step_test.go",
			"strategy_test.step"},
		{"runtime.panicIndex", "runtime/panic.go", true, "runtime/panic.go", "runtime.panicIndex"},
	} {
		f := runtime.Frame{Function: test.function, File: test.file}
		assert.Equal(t, test.library, usercode.IsLibrary(f), test.function)
		assert.Equal(t, test.at, usercode.File(f))
		assert.Equal(t, test.name, usercode.Function(f))
	}
}
