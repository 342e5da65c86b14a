package backend_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/gomlx/compute/support/backendtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

const (
	staticShapes = "XLA compiles for fixed shapes: GoMLX traces once per shape instead"
	noShared     = "device memory is reached by copies only, so there is no host view whose address could be compared"
	notFused     = "GoMLX always traces the unfused ops too, and XLA fuses those: a second, fused copy would double the program"
)

// complianceSkips lists every part of GoMLX's compliance suite that passes this backend by, with
// the reason.
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

// TestComplianceSuite runs the suite in a process of its own, since a test cannot ask its subtests
// whether they were skipped.
func TestComplianceSuite(t *testing.T) {
	if plugintest.InChild(t) {
		backendtest.RunAll(t, newBackend(t), nil)
		return
	}
	plugintest.Path(t, "cpu") // skips here where there is no plugin
	out, err := plugintest.Child(t)
	require.NoError(t, err, "%s", failures(out))

	passes, skips := 0, map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ *--- (PASS|SKIP|FAIL): TestComplianceSuite/(\S+)`).FindAllStringSubmatch(out, -1) {
		switch m[1] {
		case "PASS":
			passes++
		case "SKIP":
			skips[m[2]] = true
			assert.Contains(t, complianceSkips, m[2], "skipped without a reason in the table")
		}
	}
	for name := range complianceSkips {
		assert.True(t, skips[name], "%s has a reason to be skipped, but was not", name)
	}
	assert.GreaterOrEqual(t, passes, compliancePasses)
	t.Logf("%d passed, %d skipped", passes, len(skips))
}

// failures picks what failed out of a verbose run.
func failures(out string) string {
	var keep []string
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "=== ") && !strings.Contains(line, "--- PASS") {
			keep = append(keep, line)
		}
	}
	return strings.Join(keep, "")
}
