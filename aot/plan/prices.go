package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// Price is the price of a chip of a TPU generation.
type Price struct {
	// Generation is the name of the [tpu.Generation].
	Generation string `json:"generation"`
	// Dollars is the price of one chip for one hour.
	Dollars float64 `json:"dollars_per_chip_hour"`
	// Source describes the source and the date of the price.
	Source string `json:"source"`
}

// Prices are the prices of several TPU generations. If a generation occurs more than once, its last
// price applies.
type Prices []Price

const listPriceSource = "cloud.google.com/tpu/pricing, on demand in the United States, as quoted in 2025"

// ListPrices returns a table of list prices. Actual prices depend on the region, on commitments and
// on the use of spot machines. Generations that are not in the table have no price.
func ListPrices() Prices {
	return Prices{{"v2", 1.125, listPriceSource}, {"v3", 2.00, listPriceSource}, {"v4", 3.22, listPriceSource},
		{"v5e", 1.20, listPriceSource}, {"v5p", 4.20, listPriceSource}, {"v6e", 2.70, listPriceSource}}
}

// ParsePrice parses a price such as v5e=0.60, in dollars per chip and hour.
func ParsePrice(text string) (Price, error) {
	name, value, ok := strings.Cut(text, "=")
	dollars, err := strconv.ParseFloat(value, 64)
	g, known := tpu.LookupGeneration(strings.TrimSpace(name))
	if !ok || err != nil || !known || !(dollars >= 0) || dollars > 1e6 {
		return Price{}, &errkind.Fault{Op: "plan: price", Subject: strconv.Quote(text), Reason: "it is not a price of a chip",
			Hint: "write a generation and dollars an hour, as in v5e=0.60", Class: errkind.ValueError}
	}
	return Price{g.Name, dollars, "given"}, nil
}

// HourlyPrice returns the price of the given number of chips for an hour, in dollars, and the
// source of the price. known is false if the generation has no price.
func (prices Prices) HourlyPrice(generation string, chips int) (dollars float64, source string, known bool) {
	for _, p := range prices {
		if p.Generation == generation {
			dollars, source, known = p.Dollars*float64(chips), p.Source, true
		}
	}
	return dollars, source, known
}

// FormatDollars formats an amount in dollars.
func FormatDollars(dollars float64) string {
	switch {
	case dollars >= 100:
		return fmt.Sprintf("$%.0f", dollars)
	case dollars > 0 && dollars < 0.001: // two digits, no exponent
		return "$" + strconv.FormatFloat(dollars, 'f', 1-int(math.Floor(math.Log10(dollars))), 64)
	}
	return fmt.Sprintf("$%.3g", dollars)
}
