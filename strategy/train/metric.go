package train

import (
	"math"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/enum"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Metric is a number that a step accumulates on the devices, over all rows of all batches since it
// was reset: the weighted mean of values, in one of the forms. [MeanLoss], [Perplexity] and
// [BitsPerToken] are of the loss. [Reported] is of values that the loss function hands over with
// [Report]. Any other gives Values.
type Metric struct {
	// Name is what a [Reading] of the metric is called; no two metrics of a step have one name.
	Name string
	// Values builds the values of a replica's batch and their weights, from the step's arguments,
	// after the loss. The weights are of the values' leading dimensions; nil is 1 for each value. A
	// scalar is the mean over the batch and weighs as many as there are rows. Values may be floats,
	// integers or bools. If Values is nil, the loss function reports the metric.
	Values func(rc *strategy.ReplicaContext, in []*graph.Node) (values, weights *graph.Node)
	// Form is what is made of the mean.
	Form Form

	loss bool // of the loss
}

// Form is what a metric makes of the weighted mean of its values.
type Form int

const (
	// Mean is the mean itself.
	Mean Form = iota
	// Exponential is e to the power of the mean: of a mean loss in nats the perplexity.
	Exponential
	// Bits is the mean over ln 2: of a mean loss in nats that in bits.
	Bits
	// Total is the sum of the values times their weights.
	Total
)

// String returns "mean", "exponential", "bits" or "total".
func (f Form) String() string { return enum.Name(f, "mean", "exponential", "bits", "total") }

// of is the form of a weighted sum.
func (f Form) of(sum, weight float64) float64 {
	mean := sum / weight // NaN of nothing
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

// MeanLoss is the metric "loss": the mean of the loss over all rows, or over all weights of a loss that
// [Weighted] returned. For other weights, such as the mask of a padded batch, pass the losses and their
// weights to [Report] and use Reported("loss").
func MeanLoss() Metric { return Metric{Name: "loss", loss: true} }

// Perplexity is the metric "perplexity": e to the power of the mean loss over all rows.
func Perplexity() Metric { return Metric{Name: "perplexity", loss: true, Form: Exponential} }

// BitsPerToken is the metric "bits": the mean loss over all rows, in bits instead of nats.
func BitsPerToken() Metric { return Metric{Name: "bits", loss: true, Form: Bits} }

// Reported is a metric that the loss function hands over with [Report], as a mean. For another form
// set the metric's Form.
func Reported(name string) Metric { return Metric{Name: name} }

// Correct is 1 where the greatest logit is that of the label, and otherwise 0: the values of an
// accuracy. logits are [..., classes]; labels are integers, [...] or [..., 1].
func Correct(logits, labels *graph.Node) *graph.Node {
	if labels.Rank() == logits.Rank() && labels.Rank() > 0 && labels.Shape().Dimensions[labels.Rank()-1] == 1 {
		labels = graph.Squeeze(labels, -1)
	}
	if logits.Rank() == 0 || labels.Rank() != logits.Rank()-1 || !labels.DType().IsInt() {
		wrong("give logits [..., classes] and integer labels [...] or [..., 1]",
			"Correct is given logits %s and labels %s", logits.Shape(), labels.Shape())
	}
	return graph.Equal(graph.ArgMax(graph.StopGradient(logits), -1, labels.DType()), labels)
}

// checkMetrics refuses metrics that cannot be told apart. others are the names of the step's own.
func checkMetrics(metrics []Metric, others []string) error {
	seen := map[string]bool{}
	for _, name := range others {
		seen[name] = true
	}
	for i, m := range metrics {
		switch {
		case m.Name == "":
			return invalid("give it a Name", "metric %d has no name", i)
		case seen[m.Name]:
			return invalid("give each a name of its own", "two metrics are called %q", m.Name)
		case m.Form < Mean || m.Form > Total:
			return invalid("use Mean, Exponential, Bits or Total", "metric %q has the form %s", m.Name, m.Form)
		}
		seen[m.Name] = true
	}
	return nil
}

// Reading is what a metric was when it was read.
type Reading struct {
	Name string
	// Value is NaN if nothing came since the reset; a [Total] is 0 then.
	Value float64
	// Weight is the sum of the weights of all values since the reset. For the loss it is the number of
	// rows, or the sum of the weights of a loss that [Weighted] returned. A value of one step, such as
	// a norm, has weight 1.
	Weight float64
}
