package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/gomlx/gomlx/examples/adult"
)

// quantiles is the number of quantiles that the examples request. It is part of a file name.
const quantiles = 100

// adultTable writes the census table in the example's cache format.
func adultTable(dir string, r *rand.Rand) error {
	train, test := filepath.Join(dir, "train.csv"), filepath.Join(dir, "test.csv")
	if err := os.WriteFile(train, []byte(people(r, 2048)), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(test, []byte(people(r, 512)), 0o644); err != nil {
		return err
	}
	frame := adult.LoadDataFrame(train)
	adult.PopulateVocabularies(frame)
	adult.PopulateQuantiles(frame, quantiles)
	adult.Data.Train = adult.ConvertDataFrameToRawData(frame)
	adult.Data.Test = adult.ConvertDataFrameToRawData(adult.LoadDataFrame(test))
	return adult.SaveBinaryData(dir, quantiles)
}

// people returns random rows of the table. Age, education and working hours determine the income.
// The values are divided by ten, because one example does not normalize its inputs.
func people(r *rand.Rand, rows int) string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	var b strings.Builder
	for range rows {
		age, school, hours := 17+r.IntN(70), 1+r.IntN(16), 10+r.IntN(70)
		gain, lost := max(0, r.IntN(200)-150), max(0, r.IntN(200)-170)
		label := adult.LabelFalse
		if float64(age)/90+float64(school)/16+float64(hours)/80+0.3*r.NormFloat64() > 1.7 {
			label = adult.LabelTrue
		}
		fmt.Fprintf(&b, "%.1f, %s, %d, %s, %.1f, %s, %s, %s, %s, %s, %.1f, %.1f, %.1f, %s, %s\n",
			float64(age)/10, pick("Private", "State-gov", "Self-emp-inc", "?"), 10000+r.IntN(500000),
			pick("Bachelors", "HS-grad", "11th", "Masters"), float64(school)/10,
			pick("Never-married", "Married-civ-spouse", "Divorced"), pick("Sales", "Tech-support", "Craft-repair", "?"),
			pick("Husband", "Wife", "Own-child", "Unmarried"), pick("White", "Black", "Other"), pick("Male", "Female"),
			float64(gain)/10, float64(lost)/10, float64(hours)/10, pick("United-States", "Cuba", "India", "?"), label)
	}
	return b.String()
}
