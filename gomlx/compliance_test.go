package gomlx_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/gomlx/compute/support/backendtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

const (
	staticShapes = "XLA compiles for fixed shapes: GoMLX traces once per shape instead"
	noShared     = "device memory is reached by copies only, so there is no host view whose address could be compared"
	notFused     = "GoMLX always traces the unfused ops too, and XLA fuses those: a second, fused copy would double " +
		"the program"
)

// complianceSkips lists the skipped parts of GoMLX's compliance suite, with the reasons.
var complianceSkips = map[string]string{
	"BinaryOps/Add/DynamicShapesBroadcasting":     staticShapes,
	"Exec/BufferReuse":                            noShared,
	"FusedOps/FusedAttentionQKVProjection":        notFused,
	"FusedOps/FusedDense":                         notFused,
	"FusedOps/FusedGelu":                          notFused,
	"FusedOps/FusedLayerNorm":                     notFused,
	"FusedOps/FusedScaledDotProductAttention":     notFused,
	"FusedOps/FusedSoftmax":                       notFused,
	"SpecialOps/Concatenate/DynamicNonConcatAxis": staticShapes,
	"SpecialOps/DynamicBroadcastInDim":            staticShapes,
	"SpecialOps/DynamicIota":                      staticShapes,
	"SpecialOps/DynamicPad":                       staticShapes,
	"SpecialOps/DynamicReshape":                   staticShapes,
	"SpecialOps/Reduce/DynamicShapeReduction":     staticShapes,
	"SpecialOps/Slice/DynamicShapeFullAxis":       staticShapes,
}

// compliancePasses is the least number of passes, groups included: a suite that shrinks unseen
// proves nothing.
const compliancePasses = 316

// TestCompliance runs GoMLX's own compliance suite on one device and on a grid, and on the other meshes
// as well where the tests that GoMLX ships are run (make test-gomlx). It runs in a process of its own,
// since a test cannot ask its subtests whether they were skipped.
func TestCompliance(t *testing.T) {
	meshes := shapesOfMesh
	if os.Getenv("TPUSTRATEGY_GOMLX_SUITES") == "" {
		meshes = []shape{alone, grid}
	}
	if plugintest.InChild(t) {
		for _, over := range meshes {
			t.Run(over.name, func(t *testing.T) { backendtest.RunAll(t, newBackend(t, over), nil) })
		}
		return
	}
	plugintest.Path(t, "cpu") // skips here where there is not a plugin
	out, err := plugintest.Child(t)
	require.NoError(t, err, "%s", failures(out))
	for _, over := range meshes {
		passes, skips := 0, map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^ *--- (PASS|SKIP|FAIL): TestCompliance/`+over.name+
			`/(\S+)`).FindAllStringSubmatch(out, -1) {
			switch m[1] {
			case "PASS":
				passes++
			case "SKIP":
				skips[m[2]] = true
				assert.Contains(t, complianceSkips, m[2], "%s: skipped without a reason in the table", over.name)
			}
		}
		for name := range complianceSkips {
			assert.True(t, skips[name], "%s: %s has a reason to be skipped, but was not", over.name, name)
		}
		assert.GreaterOrEqual(t, passes, compliancePasses, over.name)
		t.Logf("%s: %d passed, %d skipped", over.name, passes, len(skips))
	}
}
