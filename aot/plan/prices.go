package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// Price is what a chip of a generation costs.
type Price struct {
	// Generation is the name of [tpu.Generation].
	Generation string `json:"generation"`
	// Dollars are those of a chip for an hour.
	Dollars float64 `json:"dollars_per_chip_hour"`
	// Source says where the figure is from, and of when.
	Source string `json:"source"`
}

// Prices are of several generations; the last of a generation holds.
type Prices []Price

// listed is where the table's figures are from.
const listed = "cloud.google.com/tpu/pricing, on demand in the United States, as quoted in 2025"

// ListPrices returns the table of list prices. It is no offer: regions, commitments and spot machines have
// others, and a generation that is not in it has no price here.
func ListPrices() Prices {
	return Prices{{"v2", 1.125, listed}, {"v3", 2.00, listed}, {"v4", 3.22, listed}, {"v5e", 1.20, listed}, {"v5p", 4.20, listed}, {"v6e", 2.70, listed}}
}

// ParsePrice reads a price such as v5e=0.60, in dollars for a chip and an hour.
func ParsePrice(text string) (Price, error) {
	name, value, ok := strings.Cut(text, "=")
	dollars, err := strconv.ParseFloat(value, 64)
	g, known := tpu.LookupGeneration(strings.TrimSpace(name))
	if !ok || err != nil || !known || !(dollars >= 0) || dollars > 1e6 {
		return Price{}, &errkind.Fault{Op: "plan: price", Subject: strconv.Quote(text), Reason: "it is no price of a chip", Hint: "write a generation and dollars an hour, as in v5e=0.60", Class: errkind.ValueError}
	}
	return Price{g.Name, dollars, "given"}, nil
}

// Of returns the dollars that so many chips of a generation cost for an hour, and where the figure is
// from; false if it is not known.
func (all Prices) Of(generation string, chips int) (dollars float64, source string, known bool) {
	for _, p := range all {
		if p.Generation == generation {
			dollars, source, known = p.Dollars*float64(chips), p.Source, true
		}
	}
	return dollars, source, known
}

// Money is an amount as people read it.
func Money(dollars float64) string {
	switch {
	case dollars >= 100:
		return fmt.Sprintf("$%.0f", dollars)
	case dollars > 0 && dollars < 0.001: // with two figures, and no exponent
		return "$" + strconv.FormatFloat(dollars, 'f', 1-int(math.Floor(math.Log10(dollars))), 64)
	}
	return fmt.Sprintf("$%.3g", dollars)
}
