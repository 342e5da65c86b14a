package train

import (
	"math"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/enum"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Metric is a weighted mean that a step accumulates on the devices, over all rows of all batches since
// the last reset. [MeanLoss], [Perplexity] and [BitsPerToken] return metrics of the loss. [Reported]
// returns a metric of values that the loss function passes to [Report]. All other metrics need Values.
type Metric struct {
	// Name is the name of the metric's [Reading]. It must be unique in a step.
	Name string
	// Values builds the values of a replica's batch and their weights from the step's arguments,
	// after the loss. The shape of the weights must be a prefix of the values' shape; nil means
	// weight 1 for each value. A scalar value without weights is the mean over the batch, and its
	// weight is the number of rows. Values may be floats, integers or bools. If Values is nil, the
	// loss function must report the metric.
	Values func(rc *strategy.ReplicaContext, in []*graph.Node) (values, weights *graph.Node)
	// Form transforms the weighted mean.
	Form Form

	loss bool // computed from the loss
}

// Form selects how the value of a metric is computed from its weighted mean.
type Form int

const (
	// Mean is the mean itself.
	Mean Form = iota
	// Exponential is e to the power of the mean. For a mean loss in nats it is the perplexity.
	Exponential
	// Bits is the mean divided by ln 2. It converts a mean loss from nats to bits.
	Bits
	// Total is the sum of the values times their weights.
	Total
)

// String returns "mean", "exponential", "bits" or "total".
func (f Form) String() string { return enum.Name(f, "mean", "exponential", "bits", "total") }

// compute returns the value of a metric from the weighted sum of its values and the sum of their weights.
func (f Form) compute(sum, weight float64) float64 {
	mean := sum / weight // NaN without values
	switch f {
	case Exponential:
		return math.Exp(mean)
	case Bits:
		return mean / math.Ln2
	case Total:
		return sum
	}
	return mean
}

// MeanLoss returns the metric "loss": the mean of the loss over all rows, or the weighted mean of a
// loss that [Weighted] returned. For other weights, such as the mask of a padded batch, pass the
// losses and their weights to [Report] and use Reported("loss").
func MeanLoss() Metric { return Metric{Name: "loss", loss: true} }

// Perplexity returns the metric "perplexity": e to the power of the mean loss over all rows.
func Perplexity() Metric { return Metric{Name: "perplexity", loss: true, Form: Exponential} }

// BitsPerToken returns the metric "bits": the mean loss over all rows, in bits instead of nats.
func BitsPerToken() Metric { return Metric{Name: "bits", loss: true, Form: Bits} }

// Reported returns a metric of the values that the loss function passes to [Report] with this name.
// The metric is a mean, unless its Form is changed.
func Reported(name string) Metric { return Metric{Name: name} }

// Correct returns the values of an accuracy metric: 1 where the label is the index of the greatest
// logit, otherwise 0. logits have shape [..., classes]. labels are integers of shape [...] or [...,
// 1].
func Correct(logits, labels *graph.Node) *graph.Node {
	if labels.Rank() == logits.Rank() && labels.Rank() > 0 && labels.Shape().Dimensions[labels.Rank()-1] == 1 {
		labels = graph.Squeeze(labels, -1)
	}
	if logits.Rank() == 0 || labels.Rank() != logits.Rank()-1 || !labels.DType().IsInt() {
		panicInvalid("give logits [..., classes] and integer labels [...] or [..., 1]",
			"Correct is given logits %s and labels %s", logits.Shape(), labels.Shape())
	}
	return graph.Equal(graph.ArgMax(graph.StopGradient(logits), -1, labels.DType()), labels)
}

// checkMetrics returns an error if a metric has an undefined form or a name that is not unique.
// others are the names that the step itself uses for metrics.
func checkMetrics(metrics []Metric, others []string) error {
	seen := map[string]bool{}
	for _, name := range others {
		seen[name] = true
	}
	for i, m := range metrics {
		switch {
		case m.Name == "":
			return newOptionError("give it a Name", "metric %d has no name", i)
		case seen[m.Name]:
			return newOptionError("give each a name of its own", "two metrics are called %q", m.Name)
		case m.Form < Mean || m.Form > Total:
			return newOptionError("use Mean, Exponential, Bits or Total", "metric %q has the form %s", m.Name, m.Form)
		}
		seen[m.Name] = true
	}
	return nil
}

// Reading is the value of a metric at the time when it was read.
type Reading struct {
	Name string
	// Value is NaN if no values were added since the reset. A [Total] is 0 then.
	Value float64
	// Weight is the sum of the weights of all values since the reset. For the loss it is the number
	// of rows, or the sum of the weights of a loss that [Weighted] returned. A value of the last
	// step, such as a norm, has weight 1.
	Weight float64
}
