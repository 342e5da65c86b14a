package pjrt_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

func TestConstantsMatchPJRTHeaders(t *testing.T) {
	for name, path := range plugintest.Headers(t) {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			var c strings.Builder
			fmt.Fprintf(&c, "#include %q\n", path)
			count := 0
			equal := func(constant string, value int) {
				if regexp.MustCompile(`\b` + constant + `\b`).Match(text) { // not in older headers
					fmt.Fprintf(&c, "_Static_assert(%s == %d, \"%s\");\n", constant, value, constant)
					count++
				}
			}
			for i, n := range pjrt.DTypeNames() {
				equal("PJRT_Buffer_Type_"+n, i)
			}
			for i, n := range pjrt.CodeNames() {
				equal("PJRT_Error_Code_"+n, i)
				assert.Equal(t, "PJRT_Error_Code_"+n, pjrt.Code(i).String())
			}
			for i, n := range pjrt.ExtensionNames() {
				equal("PJRT_Extension_Type_"+n, i)
			}
			for i, n := range []string{"kString", "kInt64", "kInt64List", "kFloat", "kBool"} {
				equal("PJRT_NamedValue_"+n, i)
			}
			equal("PJRT_HostBufferSemantics_kImmutableOnlyDuringCall", 0)
			equal("PJRT_HostBufferSemantics_kImmutableZeroCopy", 2)
			equal("PJRT_HostBufferSemantics_kMutableZeroCopy", 3)
			equal("PJRT_Buffer_MemoryLayout_Type_Tiled", 0)
			require.Greater(t, count, 65)
			plugintest.CompileC(t, c.String(), filepath.Dir(path))
		})
	}
}
