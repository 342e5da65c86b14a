package backend

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/lowering"
)

func TestConfigs(t *testing.T) {
	highest, high := lowering.PrecisionHighest, lowering.PrecisionHigh
	for s, want := range map[string]config{
		"":                              {kind: "cpu"},
		"cpu":                           {kind: "cpu"},
		"cpu,devices=8":                 {kind: "cpu", devices: 8},
		"tpu,precision=highest,alias":   {kind: "tpu", precision: &highest, alias: true},
		"/opt/plugin.so,precision=HIGH": {kind: "cpu", path: "/opt/plugin.so", precision: &high},
		",alias":                        {kind: "cpu", alias: true},
	} {
		got, err := parseConfig(s)
		require.NoError(t, err, "%q", s)
		assert.Equal(t, want, got, "%q", s)
	}
	for s, want := range map[string]string{
		"gpu":                 `"gpu" is no plugin`,
		"./plugin.so":         "absolute path",
		"cpu,":                `unknown option ""`,
		"cpu,devices":         "at least 1",
		"cpu,devices=0":       "at least 1",
		"cpu,devices=-3":      "at least 1",
		"cpu,devices=x":       "at least 1",
		"tpu,devices=4":       "not of tpu",
		"cpu,precision=low":   "default, high or highest",
		"cpu,alias=yes":       "no value",
		"cpu,alias,alias":     "given twice",
		"cpu,devices=1,Alias": `unknown option "Alias"`,
	} {
		_, err := parseConfig(s)
		assert.ErrorContains(t, err, want, "%q", s)
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, s := range []string{"", "cpu", "cpu,devices=8", "tpu,precision=highest,alias", "/a,alias", "cpu,,", "cpu,devices=99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseConfig(s)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "backend: config ") {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		if c.kind == "" || c.devices < 0 {
			t.Fatalf("%q: %+v", s, c)
		}
	})
}

func TestPackingIsTheInverseOfUnpacking(t *testing.T) {
	for d := range hostdata.Types() {
		if !d.IsPacked() {
			continue
		}
		for length := range 20 {
			packed := make([]byte, d.SizeForDimensions(length))
			for i := range packed {
				packed[i] = byte(37*i + 91*length)
			}
			if n := length * d.Bits() % 8; n != 0 { // bits beyond the last element are not kept
				packed[len(packed)-1] &= 1<<n - 1
			}
			again := make([]byte, len(packed))
			hostdata.Pack(again, hostdata.Unpack(packed, d, length), d)
			assert.Equal(t, packed, again, "%s, %d elements", d, length)
		}
	}
}
