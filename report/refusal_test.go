package report

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The report of a step that does not fit contains the known figures and suggestions.
func TestTheReportOfARefusedProgram(t *testing.T) {
	r := refused()
	assert.Equal(t, int64(4<<20+8<<10+256<<10), r.Memory.Arguments)
	var text, page bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.NoError(t, r.WriteHTML(&page))
	for _, want := range []string{"too large: 31.26 GiB, 195.4% of the memory of a core", "use more logical devices",
		"shard the training state over the replicas", "rejected the program as too large"} {
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

// The compiler's peak contains the fast memory, and the report's peak does not.
func TestThePeakIsThatOfTheMainMemory(t *testing.T) {
	m := Memory{Peak: 8539136, Code: 418816, Total: 3861504, Limit: 16 << 30}
	m.excludeFast(2864148, 5668864, 8533012)
	assert.Equal(t, int64(2864148), m.Peak, "the schedule's figure, as the fast memory is most of the compiler's")
	assert.Equal(t, int64(5668864), m.Fast)
	assert.Equal(t, int64(3861504), m.Needs)
	assert.Equal(t, Fits, m.Verdict)
	m = Memory{Peak: 8 << 30}
	m.excludeFast(7<<30, 100<<20, 7<<30)
	assert.Equal(t, int64(8<<30-100<<20), m.Peak, "the compiler's figure")
	m = Memory{Peak: 12 << 20}
	m.excludeFast(3<<20, 2<<20, 5<<20)
	assert.Equal(t, int64(10<<20), m.Peak, "the schedule does not explain the compiler's figure")
	m = Memory{Peak: 3 << 20}
	m.excludeFast(3<<20, 1<<20, 4<<20)
	assert.Equal(t, Memory{Peak: 3 << 20}, m, "a peak of the main memory alone")
}

func TestAStepThatFitsHasNoSuggestions(t *testing.T) {
	fits := Report{Memory: Memory{Verdict: Fits}}
	fits.addSuggestions(Input{})
	assert.Empty(t, fits.Suggestions)
}
