package clusterresolver

import (
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// parsers lists every parser of external text, with seeds and a check of each result. The fuzz targets
// and the mutation test use it.
var parsers = map[string]struct {
	seeds []string
	check func(text string) string // returns a description of the problem, or ""
}{
	"tf_config": {
		[]string{`{"cluster":{"chief":["c:1"],"worker":["w0:1","w1:1"],"ps":{"3":"p:1"}},"task":{"type":"worker","index":"1"},"rpc_layer":"grpc"}`,
			`{}`, `{"task":{"type":"evaluator","index":0},"environment":"google","session_master":"x"}`,
			`{"cluster":{"worker":{"0":"a","00":"b"}}}`},
		func(text string) string {
			c, err := ParseTFConfig(text)
			if err != nil {
				return longError(err)
			}
			var again ClusterSpec
			if err := again.UnmarshalJSON([]byte(c.Spec.String())); err != nil || !again.Equal(c.Spec) {
				return "spec does not survive its own JSON"
			}
			c.IsChief()
			if _, err := c.Master(); err != nil && c.Task.Type != JobEvaluator {
				return "master of an accepted task: " + err.Error()
			}
			return ""
		},
	},
	"tpu_env": {
		[]string{tpuEnvV4, "A: b\n  c\nD: \"x\\n\"\nE: 'it''s'\n", "---\n# x\nA:\n", "A: '", "\xff: x"},
		func(text string) string {
			e, err := ParseTPUEnv(text)
			if err != nil {
				return longError(err)
			}
			again, err := ParseTPUEnv(e.String())
			if err != nil {
				return "own text is refused: " + err.Error()
			}
			if again.String() != e.String() || again.Len() != e.Len() {
				return "text does not survive its own form"
			}
			parseMegascale(e.Get)
			return ""
		},
	},
	"accelerator": {
		[]string{"v4-32", "v5litepod-16", "tpu7x-8", "v2-", "v3-00000008", "-1"},
		func(text string) string {
			a, err := parseAccelerator("type", text)
			if err != nil {
				return longError(err)
			}
			if a.chips < 1 || a.minHosts < 1 || a.maxHosts < a.minHosts {
				return "accepted a type without chips or hosts"
			}
			return ""
		},
	},
	"endpoints": {
		[]string{"unknown:unknown:10.0.0.1,unknown:unknown:10.0.0.2", "a:b:2001:db8::1", "h", ",", "a:b", "::"},
		func(text string) string {
			list, err := ParseEndpoints(text)
			if err != nil {
				return longError(err)
			}
			for _, e := range list {
				if _, err := parseAddress("x", joinPort(e.Host, 1), 0); err != nil {
					return "accepted host makes no address: " + err.Error()
				}
			}
			return ""
		},
	},
	"addresses": {
		[]string{"a:1,b:2", "grpc://10.1.2.3:8470,grpc://10.1.2.4", "[::1]:80", "[fe80::1%eth0]:1", "[]:1", ":::"},
		func(text string) string {
			list, err := ParseAddresses("x", text, 8470)
			if err != nil {
				return longError(err)
			}
			again, err := ParseAddresses("x", strings.Join(list, ","), 0)
			if err != nil {
				// Only two spellings of the same address may be reported as duplicates.
				if len(list) > 1 && strings.Contains(err.Error(), "listed twice") {
					return ""
				}
				return "own form is refused: " + err.Error()
			}
			if strings.Join(again, ",") != strings.Join(list, ",") {
				return "addresses do not survive their own form"
			}
			return ""
		},
	},
	"environment": {
		[]string{"4x4", "2,2,1", "0,1,2,3", "host:8081", "1", "true", "a,b"},
		func(text string) string {
			// All variables have the same malformed value.
			e, err := ReadEnvironment(func(string) string { return text })
			if err == nil {
				Check(e, Metadata{})
				_, err = SliceOptions{}.newCluster("x", e, Metadata{})
			}
			if err != nil && err.Error() == "" {
				return "error without a text"
			}
			return ""
		},
	},
}

// longError returns a description of the problem if an error is too long or contains control
// characters, or "".
func longError(err error) string {
	if s := err.Error(); len(s) > 4*maxQuoted+400 || !utf8.ValidString(s) {
		return "error is longer than its reader or not UTF-8"
	}
	return ""
}

func fuzz(f *testing.F, name string) {
	p := parsers[name]
	for _, s := range p.seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if wrong := p.check(text); wrong != "" {
			t.Fatalf("%q: %s", text, wrong)
		}
	})
}

func FuzzTFConfig(f *testing.F)    { fuzz(f, "tf_config") }
func FuzzTPUEnv(f *testing.F)      { fuzz(f, "tpu_env") }
func FuzzAccelerator(f *testing.F) { fuzz(f, "accelerator") }
func FuzzEndpoints(f *testing.F)   { fuzz(f, "endpoints") }
func FuzzAddresses(f *testing.F)   { fuzz(f, "addresses") }
func FuzzEnvironment(f *testing.F) { fuzz(f, "environment") }

var mutations = flag.Int("mutations", 20_000, "inputs for each parser in TestParsersSurviveMutations")

// In addition to fuzzing, this test parses many seeded mutations of valid inputs, so that failures
// are reproducible.
func TestParsersSurviveMutations(t *testing.T) {
	for name, p := range parsers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, uint64(len(name))))
			for range *mutations {
				text := mutate(r, p.seeds)
				if wrong := p.check(text); wrong != "" {
					t.Fatalf("%q: %s", text, wrong)
				}
			}
		})
	}
}

func mutate(r *rand.Rand, seeds []string) string {
	const alphabet = "\"'{}[]:,.-_0129azAZ \n\t\\#%xv\x00\xff"
	b := []byte(seeds[r.IntN(len(seeds))])
	for range r.IntN(4) {
		i := 0
		if len(b) > 0 {
			i = r.IntN(len(b))
		}
		switch r.IntN(4) {
		case 0:
			b = append(b[:i], append([]byte{alphabet[r.IntN(len(alphabet))]}, b[i:]...)...)
		case 1:
			if len(b) > 0 {
				b[i] = alphabet[r.IntN(len(alphabet))]
			}
		case 2:
			b = b[:i]
		case 3:
			o := seeds[r.IntN(len(seeds))]
			b = append(b[:i], o[r.IntN(len(o)+1):]...)
		}
	}
	return string(b)
}

func TestErrorsDoNotRepeatLongInputs(t *testing.T) {
	long := strings.Repeat("é", 1<<19)
	for name, p := range parsers {
		require.Empty(t, p.check(long), name)
	}
}
