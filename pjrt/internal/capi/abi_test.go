package capi_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
)

// declaration is a struct of abi.h with its fields in order.
type declaration struct {
	name   string
	fields []string
}

var (
	comment   = regexp.MustCompile(`(?s)//[^\n]*|/\*.*?\*/`)
	structs   = regexp.MustCompile(`(?s)typedef struct \{(.*?)\} (tps_\w+);`)
	fieldName = regexp.MustCompile(`\(\*(\w+)\)|(\w+);`)
)

// parseABI returns the structs of abi.h.
func parseABI(t *testing.T) []declaration {
	t.Helper()
	text, err := os.ReadFile("abi.h")
	require.NoError(t, err)
	_, body, _ := strings.Cut(string(text), "#include <stdint.h>")
	body = comment.ReplaceAllString(body, "")
	var out []declaration
	for _, m := range structs.FindAllStringSubmatch(body, -1) {
		s := declaration{name: strings.TrimPrefix(m[2], "tps_")}
		if strings.Contains(m[1], "TPS_HEAD") {
			s.fields = append(s.fields, "struct_size", "extension_start")
		}
		members := strings.ReplaceAll(m[1], "TPS_HEAD", "")
		for _, decl := range strings.SplitAfter(members, ";") {
			if f := fieldName.FindStringSubmatch(decl); f != nil {
				s.fields = append(s.fields, f[1]+f[2])
			}
		}
		out = append(out, s)
	}
	return out
}

// header is the contents of an official header.
type header struct {
	path    string
	text    string
	structs map[string]string // bodies by name without PJRT_
	slots   []string
	minor   int
}

var (
	theirStruct = regexp.MustCompile(`(?s)struct PJRT_(\w+) \{(.*?)\n\}`)
	theirSlot   = regexp.MustCompile(`_PJRT_API_STRUCT_FIELD\(PJRT_(\w+)\);`)
	theirMinor  = regexp.MustCompile(`#define PJRT_API_MINOR (\d+)`)
)

func readHeader(t *testing.T, path string) header {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	h := header{path: path, text: comment.ReplaceAllString(string(b), ""), structs: map[string]string{}}
	for _, m := range theirStruct.FindAllStringSubmatch(h.text, -1) {
		h.structs[m[1]] = m[2]
	}
	for _, m := range theirSlot.FindAllStringSubmatch(h.text, -1) {
		h.slots = append(h.slots, m[1])
	}
	_, err = fmt.Sscan(theirMinor.FindStringSubmatch(h.text)[1], &h.minor)
	require.NoError(t, err)
	return h
}

func TestABIMatchesHeaders(t *testing.T) {
	all := parseABI(t)
	require.Greater(t, len(all), 80, "abi.h was not parsed")
	wd, err := os.Getwd()
	require.NoError(t, err)
	seen := map[string]bool{} // fields that exist in at least one header
	for name, path := range plugintest.Headers(t) {
		t.Run(name, func(t *testing.T) {
			h := readHeader(t, path)
			var c strings.Builder
			fmt.Fprintf(&c, "#include <stddef.h>\n#include %q\n#include \"abi.h\"\n", path)
			asserts := 0
			for _, s := range all {
				if s.name == "Api" {
					continue // its slots are checked below
				}
				body, ok := h.structs[s.name]
				if !ok {
					continue // introduced after this header; each struct must exist in one header
				}
				grown := false
				for _, f := range s.fields {
					if !regexp.MustCompile(`\W` + f + `\W`).MatchString(body) {
						grown = true // introduced after this header
						continue
					}
					require.False(t, grown, "%s.%s: a field after one that this header lacks", s.name, f)
					seen[s.name+"."+f] = true
					asserts++
					fmt.Fprintf(&c,
						"_Static_assert(offsetof(tps_%[1]s, %[2]s) == offsetof(PJRT_%[1]s, %[2]s), \"offset of %[1]s.%[2]s\");\n", s.name,
						f)
					fmt.Fprintf(&c,
						"_Static_assert(sizeof(((tps_%[1]s*)0)->%[2]s) == sizeof(((PJRT_%[1]s*)0)->%[2]s), \"size of %[1]s.%[2]s\");\n",
						s.name, f)
				}
				last := s.fields[len(s.fields)-1]
				if !grown && s.name != "Extension_Base" {
					// Later headers may append fields, but do not remove any.
					fmt.Fprintf(&c,
						"_Static_assert(TPS_SIZE(tps_%[1]s, %[2]s) <= PJRT_%[1]s_STRUCT_SIZE, \"struct size of %[1]s\");\n", s.name, last)
				}
			}
			fmt.Fprintf(&c,
				"_Static_assert(sizeof(tps_Api) == offsetof(PJRT_Api, PJRT_Error_Destroy), \"head of the table\");\n")
			for i, slot := range capi.Functions() {
				if i < len(h.slots) {
					fmt.Fprintf(&c,
						"_Static_assert(sizeof(tps_Api) + %d * sizeof(void*) == offsetof(PJRT_Api, PJRT_%s), \"slot %s\");\n", i,
						slot.Name, slot.Name)
				}
			}
			require.Greater(t, asserts, 300)
			plugintest.CompileC(t, c.String(), wd, filepath.Dir(path))
		})
	}
	for _, s := range all {
		for _, f := range s.fields {
			if s.name != "Api" {
				assert.True(t, seen[s.name+"."+f], "no official header has %s.%s", s.name, f)
			}
		}
	}
}

func TestWrongLayoutDoesNotCompile(t *testing.T) {
	if os.Getenv("CC_NEGATIVE") != "" {
		plugintest.CompileC(t, "_Static_assert(1 == 2, \"must fail\");")
		return
	}
	t.Setenv("CC_NEGATIVE", "1")
	_, err := plugintest.Child(t)
	require.Error(t, err, "the compiler must evaluate the assertions")
}

func TestSlotsMatchHeaders(t *testing.T) {
	slots := capi.Functions()
	sources, err := filepath.Glob("*.[ch]")
	require.NoError(t, err)
	var code string
	for _, path := range sources {
		if path != "slots.h" && path != "abi.h" {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			code += string(text)
		}
	}
	for _, s := range slots {
		used := regexp.MustCompile(`(CALL\(|TPS_SLOT_|, )` + s.Name + `\b`).MatchString(code)
		assert.Equal(t, s.Used, used, "slot %s: table and shims disagree", s.Name)
		assert.Equal(t, s.Used, s.Reason == "", "slot %s needs a reason exactly if it is not bound", s.Name)
		assert.GreaterOrEqual(t, s.Minor, capi.MinMinor, s.Name)
	}
	longest := 0
	for name, path := range plugintest.Headers(t) {
		h := readHeader(t, path)
		require.LessOrEqual(t, len(h.slots), len(slots), "%s has slots that slots.h does not list: append them", name)
		longest = max(longest, len(h.slots))
		for i, want := range h.slots {
			assert.Equal(t, want, slots[i].Name, "%s slot %d", name, i)
			assert.LessOrEqual(t, slots[i].Minor, h.minor, "%s: PJRT 0.%d has %s", name, h.minor, want)
		}
		if len(h.slots) < len(slots) {
			assert.Greater(t, slots[len(h.slots)].Minor, h.minor, "%s ends before %s", name, slots[len(h.slots)].Name)
		}
	}
	assert.Equal(t, len(slots), longest, "slots.h has a slot that is in no header")
}
