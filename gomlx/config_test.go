package gomlx

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/plain"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestConfigStrings(t *testing.T) {
	highest := lowering.PrecisionHighest
	for text, want := range map[string]config{
		"":              {},
		"devices=8":     {devices: 8},
		"cpu,devices=8": {plugin: "cpu", devices: 8},
		"/a/b.so":       {plugin: "/a/b.so"},
		"devices=8,logical=2,rules=megatron.json,cache=DIR,explain=1": {devices: 8, logical: 2, rules: "megatron.json",
			cacheDir: "DIR", explain: true},
		"topology=v5e:4x4,rules=megatron+fsdp,report=r.json": {topology: "v5e:4x4", rules: "megatron+fsdp",
			reportFile: "r.json"},
		"topology=2x v5e-256":                    {topology: "2x v5e-256"},
		"topology=cpu:8":                         {topology: "cpu:8"},
		"plugin=tpu,precision=Highest,explain=0": {plugin: "tpu", precision: &highest},
		`axes="model=4, sequence=2"`: {axes: []sharding.Axis{{Name: "model", Size: 4},
			{Name: "sequence", Size: 2}}},
		"axes=model:4+sequence:2,logical=8": {logical: 8, axes: []sharding.Axis{{Name: "model", Size: 4},
			{Name: "sequence", Size: 2}}},
		`cache="/a,b:c=\"d\\",rules="x,y.json"`:   {cacheDir: `/a,b:c="d\`, rules: "x,y.json"},
		`cache=/a"b`:                              {cacheDir: `/a"b`},
		"cache=/a:b=c":                            {cacheDir: "/a:b=c"},
		"plugin=/p/libx.so, devices=2 ,logical=2": {plugin: "/p/libx.so", devices: 2, logical: 2},
	} {
		want.text = text
		got, err := parseConfig(strings.ReplaceAll(text, "2 ,", "2,"))
		require.NoError(t, err, text)
		got.text = text
		assert.Equal(t, want, *got, text)
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, s := range []string{"", "cpu", "cpu,devices=8", "tpu,precision=highest", "/a,explain=1", "cpu,,",
		"devices=99999999999999999999", `cache="a`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseConfig(s)
		if err != nil && !errors.Is(err, ErrConfig) {
			t.Fatalf("%q: %v", s, err)
		}
		if err == nil && (c.devices < 0 || c.logical < 0) {
			t.Fatalf("%q: %+v", s, c)
		}
	})
}

func TestConfigStringsThatCannotBeMeant(t *testing.T) {
	for text, want := range map[string]string{
		"device=8": `option "device": unknown option; the options are plugin, devices, logical, axes, ` +
			`rules, precision, cache, explain, topology, report, plan; a value with a comma`,
		"devices":                    "option devices: it has no value; write devices=...",
		"devices=0":                  `option devices: "0" is not a valid number of devices; give a number from 1 to`,
		"devices=1e9":                `option devices: "1e9"`,
		"devices=2,devices=2":        "option devices: it is given twice",
		"devices=2,,logical=1":       "there is nothing between two commas",
		"devices=2,":                 "there is nothing between two commas",
		"plugin=gpu":                 `option plugin: "gpu" is not a plugin; give cpu, tpu, cuda or the absolute path of one`,
		"plugin=lib.so":              `option plugin: "lib.so" is not a plugin`,
		"logical=2,cpu":              `option "cpu": unknown option`,
		"rules=":                     "option rules: it is empty; name a JSON file, or built-in sets: fsdp, megatron, zero1",
		"cache=":                     "option cache: it is empty",
		"explain=yes":                `option explain: "yes" is not 0 or 1; give 1 or 0`,
		"precision=exact":            `option precision: "exact" is not a precision; give default, high or highest`,
		"topology=v9-8":              "option topology:",
		"topology=cpu:0":             "option topology:",
		"report=r.json":              "option report: only topology= writes a report",
		"report=,topology=v5e-16":    "option report: it is empty",
		"topology=v5e-16,cache=d":    "option cache: with topology= no program is run or cached",
		"topology=v5e-16,devices=2":  "option devices: the topology specifies the number of devices",
		"topology=v5e-16,plugin=cpu": "option plugin: cpu does not compile for v5e-16",
		"topology=cpu:8,plugin=tpu":  "option plugin: tpu does not compile for cpu:8",
		"axes=model": `option axes: "model" has no axes with sizes; give names and sizes as ` +
			`axes=model:4+sequence:2`,
		"axes=replica:2":      `axis name "replica" is reserved for the replicas`,
		"axes=a:2+a:2":        "option axes:",
		"axes=a:2,logical=4":  "option axes: they make 2 logical devices, and logical is 4; leave logical out",
		`cache="/a,explain=1`: "a quoted value does not end",
		`cache="/a"b`:         `option cache: "/a"b has invalid quotes`,
	} {
		_, err := parseConfig(text)
		require.ErrorIs(t, err, ErrConfig, text)
		assert.Contains(t, err.Error(), want, text)
		assert.Contains(t, err.Error(), "gomlx: config ")
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
}

func TestEveryOptionIsDocumented(t *testing.T) {
	register, err := os.ReadFile("register.go")
	require.NoError(t, err)
	for _, o := range configOptions {
		assert.Contains(t, string(register), "\n//	"+o.name+"=", "the list of NewFromConfig")
	}
}

func FuzzConfig(f *testing.F) {
	for _, seed := range []string{"", "devices=8,logical=2", `cache="a,b",explain=1`, "axes=a:2+b:3", "topology=v5e:4x4",
		`"`, "cpu"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseConfig(text)
		if err != nil {
			require.ErrorIs(t, err, ErrConfig)
			return
		}
		require.GreaterOrEqual(t, c.applyTo(Options{}).devicesPerReplica(), 1)
	})
}

// A configuration with control characters or terminal escape codes is an error, in each option and however it
// is quoted, and the error does not print them.
func TestConfigRejectsControlCharacters(t *testing.T) {
	for _, evil := range []string{"\x1b[31m", "\x1b]0;title\a", "\x00", "\n", "\r", "\u009b1m", "\u202e", "\xff"} {
		for _, text := range []string{"rules=megatron%", "rules=%.json", `rules="a%,b"`, "topology=v5e-8%",
			"topology=%v5e:4x4", "cache=/d%", "plugin=/p%.so", "report=r%",
			"plan=p%", "precision=%", "devices=8%", "explain=%", "axes=model%:4", "cpu%,devices=8", "unknown%=1"} {
			text = strings.ReplaceAll(text, "%", evil)
			_, err := parseConfig(text)
			require.ErrorIs(t, err, ErrConfig, "%q", text)
			assert.Equal(t, plain.EscapeLine(err.Error()), err.Error(), "%q", text)
		}
	}
}
