package events

import (
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Histogram is a distribution of numbers, divided into buckets.
type Histogram struct {
	Min, Max, Number, Sum, Squares float64
	// Limits are the upper bounds of the buckets, in ascending order. Buckets are the counts of
	// numbers in the buckets.
	Limits, Buckets []float64
}

// buckets is the number of buckets of a histogram, as in TensorBoard.
const buckets = 30

// NewHistogram returns a value that contains the distribution of numbers over 30 buckets of equal
// width. Numbers that are not finite are ignored.
func NewHistogram(tag string, numbers []float64) Value {
	finite := slices.DeleteFunc(slices.Clone(numbers), func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
	h := Histogram{Number: float64(len(finite))}
	if len(finite) > 0 {
		h.Min, h.Max = slices.Min(finite), slices.Max(finite)
		n := buckets
		if h.Min == h.Max {
			n = 1
		}
		for i := range n {
			part := float64(i+1) / float64(n)
			h.Limits = append(h.Limits, h.Min*(1-part)+h.Max*part)
		}
		h.Limits[n-1] = h.Max
		h.Buckets = make([]float64, n)
		for _, x := range finite {
			at, _ := slices.BinarySearch(h.Limits, x)
			h.Buckets[min(at, n-1)]++
			h.Sum += x
			h.Squares += x * x
		}
	}
	return Value{Tag: tag, Kind: IsHistogram, Histogram: h}
}

// encode returns the histogram as an encoded tensorflow.HistogramProto message.
func (h Histogram) encode() (m []byte) {
	for i, x := range []float64{h.Min, h.Max, h.Number, h.Sum, h.Squares} {
		m = appendDouble(m, histogramMin+protowire.Number(i), x)
	}
	for i, list := range [][]float64{h.Limits, h.Buckets} {
		var packed []byte
		for _, x := range list {
			packed = protowire.AppendFixed64(packed, math.Float64bits(x))
		}
		m = appendBytes(m, histogramLimits+protowire.Number(i), packed)
	}
	return m
}
