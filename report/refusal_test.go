package report

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

func TestARefusalHasTheCompilersFigures(t *testing.T) {
	refused := func(text string) *Refusal { return RefusalOf(&pjrt.Error{Code: pjrt.ResourceExhausted, Msg: text}) }
	assert.Equal(t, &Refusal{Used: "31.26G", Limit: "15.75G", Excess: "15.51G", Log: "Used 31.26G of 15.75G hbm. Exceeded hbm capacity by 15.51G."},
		refused("Used 31.26G of 15.75G hbm. Exceeded hbm capacity by 15.51G."))
	r := refused("the total memory required for HLO temporaries (24.05G) exceeds available HBM (15.75G)")
	assert.Equal(t, []string{"24.05G", "15.75G"}, []string{r.Used, r.Limit})
	assert.Nil(t, RefusalOf(&pjrt.Error{Code: pjrt.InvalidArgument, Msg: "Used 1G of 2G hbm"}))
	assert.Nil(t, RefusalOf(nil))
	for text, want := range map[string]int64{"31.5G": 63 << 29, "2K": 2048, "7B": 7, "": 0, "many": 0, "3X": 0} {
		assert.Equal(t, want, bytesOf(text), text)
	}
}

// The report of a step that does not fit contains the known figures and suggestions.
func TestTheReportOfARefusedProgram(t *testing.T) {
	r := refused()
	assert.Equal(t, int64(4<<20+8<<10+256<<10), r.Memory.Arguments)
	var text, page bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.NoError(t, r.WriteHTML(&page))
	for _, want := range []string{"too large: 31.26 GiB, 195.4% of the memory of a core", "use more logical devices", "share the state of training out", "refused the program as too large"} {
		assert.Contains(t, text.String(), want)
		assert.Contains(t, page.String(), want)
	}
	for _, no := range []string{"temporaries  ", "peak", "total  "} {
		assert.NotContains(t, text.String(), no, "what is not known is not said")
	}
	data, err := json.Marshal(r)
	require.NoError(t, err)
	back, err := Parse(data)
	require.NoError(t, err)
	assert.Equal(t, r, back)
	assert.Empty(t, sample().Suggestions)
}
