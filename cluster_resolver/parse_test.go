package clusterresolver

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseEndpoints(t *testing.T) {
	got, err := ParseEndpoints("unknown:unknown:10.164.0.41, unknown:unknown:10.164.0.22,n:7:2001:db8::1,host-3\n")
	require.NoError(t, err)
	assert.Equal(t, []Endpoint{
		{"unknown", "unknown", "10.164.0.41"}, {"unknown", "unknown", "10.164.0.22"}, {"n", "7", "2001:db8::1"}, {"", "", "host-3"},
	}, got)
	for text, want := range map[string]string{
		"":                          "empty",
		" \n":                       "empty",
		"a:b":                       "two fields",
		"a:b:":                      "no valid host",
		"a:b:c,":                    "no valid host",
		"a:b:10.0.0.1,a:b:10.0.0.1": "two workers with one address",
		"a:b:ho st":                 "no valid host",
		"a:b:http://x":              "no valid host",
		strings.Repeat(",", 1<<17):  "more than 65536 workers",
	} {
		_, err := ParseEndpoints(text)
		var pe *ParseError
		require.ErrorAs(t, err, &pe, "%.40q", text)
		assert.ErrorContains(t, err, want)
		assert.Less(t, len(err.Error()), 400)
	}
}

func TestParseAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		port int
		want []string
		err  string
	}{
		"ports":               {"a:8476,b:8477", 0, []string{"a:8476", "b:8477"}, ""},
		"scheme, one port":    {"grpc://10.1.2.3:8470,grpc://10.1.2.4", 8470, []string{"10.1.2.3:8470", "10.1.2.4:8470"}, ""},
		"spaces":              {" a:1 , b:2 ", 0, []string{"a:1", "b:2"}, ""},
		"ipv6":                {"[2001:db8::1]:1,[2001:db8::2],2001:db8::3", 9, []string{"[2001:db8::1]:1", "[2001:db8::2]:9", "[2001:db8::3]:9"}, ""},
		"no port, no default": {"a", 0, nil, "address has no port"},
		"port zero":           {"a:0", 0, nil, "not a port"},
		"port too large":      {"a:65536", 0, nil, "not a port"},
		"empty item":          {"a:1,,b:1", 0, nil, "empty item"},
		"empty":               {"", 0, nil, "empty list"},
		"twice":               {"a:1,a:1", 0, nil, "given twice"},
		"other scheme":        {"http://a:1", 0, nil, "not an address"},
		"path":                {"a:1/x", 0, nil, "not a port"},
		"bad host":            {"-a:1", 0, nil, "not an address"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseAddresses("X", c.text, c.port)
			if c.err != "" {
				assert.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

// tpuEnvV4 has the keys and the quoting of a v4-32's attribute.
const tpuEnvV4 = `ACCELERATOR_TYPE: 'v4-32'
ALT: 'false'
CHIPS_PER_HOST_BOUNDS: '2,2,1'
CONSUMER_PROJECT_ID: 'my-project'
HOST_BOUNDS: '1,1,4'
INJECT_SLICE_BUILDER_FAULT: ''
NODE_ID: 'my-tpu'
TOPOLOGY: '2x2x4'
TPU_CHIPS_PER_PROCESS_BOUNDS: '2,2,1'
TPU_PROCESS_BOUNDS: '1,1,4'
TYPE: 'V4'
WORKER_ID: '2'
WRAP: 'true,true,true'
ZONE: 'us-central2-b'
`

func TestParseTPUEnv(t *testing.T) {
	e, err := ParseTPUEnv(tpuEnvV4)
	require.NoError(t, err)
	assert.Equal(t, "v4-32", e.Get("ACCELERATOR_TYPE"))
	assert.Equal(t, "", e.Get("INJECT_SLICE_BUILDER_FAULT"))
	assert.Equal(t, "", e.Get("NOT_THERE"))
	assert.Equal(t, 14, e.Len())
	assert.Equal(t, tpuEnvV4, e.String())
	assert.IsIncreasing(t, e.Keys())

	e, err = ParseTPUEnv("---\n# note\nPLAIN: a: b\n  goes on\nEMPTY:\nTWO: 'it''s'\nD: \"a\\n\\\"b\\\"\"\r\n")
	require.NoError(t, err)
	assert.Equal(t, "a: b goes on", e.Get("PLAIN"))
	assert.Equal(t, "it's", e.Get("TWO"))
	assert.Equal(t, "a\n\"b\"", e.Get("D"))

	for text, want := range map[string]string{
		"no colon":                 "not KEY: value",
		": v":                      "not KEY: value",
		"K V: x":                   "not KEY: value",
		"<html>: x":                "not KEY: value",
		" indented: x":             "indented line",
		"A: 'x'\n more":            "indented line",
		"A: 1\nA: 2":               "key given twice",
		"A: 'x":                    "opening quote only",
		"A: '":                     "opening quote only",
		"A: 'x'y'":                 "stray quote",
		`A: "x"y"`:                 "stray quote",
		`A: "\q"`:                  "unknown escape",
		`A: "x\"`:                  "opening quote only",
		strings.Repeat("A", 1<<21): "longer than 1 MiB",
	} {
		_, err := ParseTPUEnv(text)
		var pe *ParseError
		require.ErrorAs(t, err, &pe, "%.40q", text)
		assert.ErrorContains(t, err, want)
	}
}

func TestParseAccelerator(t *testing.T) {
	for text, want := range map[string]struct{ chips, devicesPerChip, minHosts, maxHosts int }{
		"v2-8":         {4, 2, 1, 1},
		"v3-32":        {16, 2, 4, 4},
		"v4-32":        {16, 1, 4, 4},
		"v4-24":        {12, 1, 3, 3}, // no default shape, but a slice of 2x2x3 is this
		"v5p-4096":     {2048, 1, 512, 512},
		"v5litepod-1":  {1, 1, 1, 1},
		"v5litepod-8":  {8, 1, 1, 2},
		"v5litepod-16": {16, 1, 4, 4},
		"v6e-8":        {8, 1, 1, 2},
		"v6e-256":      {256, 1, 64, 64},
		"tpu7x-16":     {8, 2, 2, 2},
	} {
		got, err := parseAccelerator("type", text)
		require.NoError(t, err, text)
		assert.Equal(t, []int{want.chips, want.devicesPerChip, want.minHosts, want.maxHosts},
			[]int{got.chips, got.generation.DevicesPerChip, got.minHosts, got.maxHosts}, text)
	}
	for text, want := range map[string]string{
		"": "not an accelerator type", "v4": "not an accelerator type", "v4-": "not an accelerator type",
		"v4-0": "not an accelerator type", "v4--8": "not an accelerator type", "v4-99999999999": "not an accelerator type",
		"v4-9": "odd number of cores", "v99-8": "unknown TPU generation", "V4-8": "unknown TPU generation",
	} {
		_, err := parseAccelerator("type", text)
		assert.ErrorContains(t, err, want, text)
	}
}

func TestParseBoundsAndTopology(t *testing.T) {
	b, err := ParseBounds("X", "2, 2,4")
	require.NoError(t, err)
	assert.Equal(t, Bounds{2, 2, 4}, b)
	assert.Equal(t, 16, b.Size())
	assert.Equal(t, "2,2,4", b.String())
	four, err := ParseBounds("X", "2,2,1,2")
	require.NoError(t, err)
	assert.Equal(t, Bounds{2, 2, 1, 2}, four)
	assert.Equal(t, 8, four.Size())
	assert.Equal(t, "2,2,1,2", four.String())
	for _, bounds := range []Bounds{b, four, {}} {
		text, err := json.Marshal(bounds)
		require.NoError(t, err)
		var back Bounds
		require.NoError(t, json.Unmarshal(text, &back))
		assert.Equal(t, bounds, back)
	}
	for _, s := range []string{"", "1", "1,1", "1,1,1,1,1", "1,1,1,0", "1,1,1,", "0,1,1", "-1,1,1", "a,1,1", "1,1,", "99999999,1,1", "1000,1000,1000", "65536,65536,65536,65536"} {
		_, err := ParseBounds("X", s)
		assert.ErrorContains(t, err, "not three sides", s)
	}
	n, err := parseTopology("X", "4x4")
	require.NoError(t, err)
	assert.Equal(t, 16, n)
	for _, s := range []string{"", "4", "4x", "x4", "4x0", "2x2x2x2", "4X4", "4,4", "1000x1000x1000"} {
		_, err := parseTopology("X", s)
		assert.ErrorContains(t, err, "not a topology", s)
	}
}
