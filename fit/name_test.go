package fit

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Prometheus ends the process on a label that is not UTF-8, and JSON changes such a name.
func TestAMetricsNameIsUTF8(t *testing.T) {
	s := &State{}
	s.SetMetric("a\xffb", 1)
	s.SetMetric("Größe", 2)
	assert.Equal(t, []Metric{{"a\ufffdb", 1}, {"Größe", 2}}, s.Metrics())
	assert.Equal(t, "a\ufffdb", publishedName("a\xffb"))
	assert.Equal(t, MeanLoss, publishedName(Loss))
}
