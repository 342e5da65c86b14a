package screen

import (
	"fmt"
	"strings"
	"testing"
)

// Shardings with numbers that fit each other are the compiler's to judge, others are not.
func TestShardingsOfGSPMDAreReadStrictly(t *testing.T) {
	for text, good := range map[string]bool{
		"{replicated}":         true,
		"{manual}":             true,
		"{maximal device=3}":   true,
		"{devices=[2]<=[2]}":   true,
		"{devices=[2,1]0,1}":   true,
		"{devices=[2, 1]1, 0}": true,
		"{devices=[4,2]<=[2,4]T(1,0) metadata={op_name=\"a}\"}}":     true,
		"{devices=[1,2]<=[2] last_tile_dim_replicate}":               true,
		"{devices=[1,2,2]<=[4] last_tile_dims={manual, replicated}}": true,
		"{{replicated}, {devices=[2]<=[2]}}":                         true,
		"{}":                                                         true,
		"{mesh[a=2], [{a}]}":                                         true,
		"\b\x03\x1a\x01\x02\"\x02\x00\x01":                           true, // tiles [2], devices 0 and 1
		"\b\x03\x1a\x02\x01\x02J\x01\x02R\x01\x000\x01":              true, // [1,2]<=[2]T(0), replicated last
		"\b\x04":                  true, // manual
		"\b\x02*\x02\b\x00":       true, // a tuple
		"":                        true, // replicated, as a proto
		"{unknown}":               false,
		"{replicated}}":           false,
		"{replicated shard_as 1}": false,
		"{devices=[0]<=[0]}":      false,
		"{devices=[2]<=[0]}":      false,
		"{devices=[2]<=[3]}":      false,
		"{devices=[-1]0}":         false,
		"{devices=[2]0,1,2,3}":    false,
		"{devices=[2]0,0}":        false,
		"{devices=[2]0,2}":        false,
		"{devices=[2]}":           false,
		"{devices=[]<=[1]}":       false,
		"{devices=[1000000,1000000]<=[1000000,1000000]}":    false,
		"{devices=[99999999999999999999]0}":                 false,
		"{devices=[2,2]<=[2,2]T(0,0)}":                      false,
		"{devices=[2,2]<=[2,2]T(1)}":                        false,
		"{devices=[1]0 last_tile_dims={manual,replicated}}": false,
		"{devices=[1,1]0 last_tile_dims={manual,manual}}":   false,
		"{{{replicated}}}":                                  false,
		"garbage":                                           false,
		"\b\x03\x1a\x01\x02\"\x04\x00\x01\x02\x03":          false, // tiles [2] of four devices
		"\b\x03\x1a\x01\x00J\x01\x00":                       false, // [0]<=[0]
		"\b\x05":                                            false, // unknown
		"\b\x03\x1a":                                        false,
		"\b\x02*\x04\b\x02*\x00":                            false, // a tuple in a tuple
	} {
		if err := checkSharding(text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A sharding is found wherever its text stands.
func TestShardingsAreFoundInModulesAndInBytecode(t *testing.T) {
	const bad = "{devices=[2]0,1,2,3}"
	for _, text := range []string{
		fmt.Sprintf("module attributes {mhlo.spmd_parameters_shardings = [\"{replicated}\", %q]} {}", bad),
		fmt.Sprintf("#s = %q\nmodule attributes {mhlo.spmd_output_sharding = #s} {}", bad),
		"module attributes {mhlo.sharding = \"garbage\"} {}",
		mlirBytecodeMagic + "\x00mhlo.sharding\x00{manual}\x00" + bad + "\x00",
		mlirBytecodeMagic + "\x17" + bad + "\x00",
	} {
		if _, err := MLIR([]byte(text), Options{}); err == nil || !strings.Contains(err.Error(), "the sharding") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := MLIR([]byte(strings.ReplaceAll("module attributes {mhlo.spmd_output_sharding = \"S\"} {}", "S", "{devices=[2]0,1}")), Options{}); err != nil {
		t.Error(err)
	}
}

func FuzzSharding(f *testing.F) {
	f.Add("{devices=[4,2]<=[2,4]T(1,0) last_tile_dims={manual,replicated} metadata={a=\"b\"}}")
	f.Add("{{replicated},{maximal device=1}}")
	f.Add("\b\x03\x1a\x02\x01\x02J\x01\x02R\x01\x000\x01")
	f.Fuzz(func(t *testing.T, s string) {
		if checkSharding(s) == nil && strings.Contains(s, "devices=[0") {
			// A count of 0 passes in metadata only.
			if !strings.Contains(s, "metadata") && !strings.HasPrefix(s, "{mesh") && strings.HasPrefix(s, "{") {
				t.Fatal("a count of 0 passes")
			}
		}
	})
}
