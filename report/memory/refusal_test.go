package memory

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

func TestARefusalHasTheCompilersFigures(t *testing.T) {
	refused := func(text string) *Refusal { return RefusalOf(&pjrt.Error{Code: pjrt.ResourceExhausted, Msg: text}) }
	assert.Equal(t, &Refusal{Used: "31.26G", Limit: "15.75G", Excess: "15.51G",
		Log: "Used 31.26G of 15.75G hbm. Exceeded hbm capacity by 15.51G."},
		refused("Used 31.26G of 15.75G hbm. Exceeded hbm capacity by 15.51G."))
	r := refused("the total memory required for HLO temporaries (24.05G) exceeds available HBM (15.75G)")
	assert.Equal(t, []string{"24.05G", "15.75G"}, []string{r.Used, r.Limit})
	assert.Nil(t, RefusalOf(&pjrt.Error{Code: pjrt.InvalidArgument, Msg: "Used 1G of 2G hbm"}))
	assert.Nil(t, RefusalOf(nil))
	for text, want := range map[string]int64{"31.5G": 63 << 29, "2K": 2048, "7B": 7, "": 0, "many": 0, "3X": 0} {
		assert.Equal(t, want, parseBytes(text), text)
	}
}
