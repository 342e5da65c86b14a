package upstream_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// patch is a parsed change.patch file: lines of "Key: value", followed by a unified diff.
type patch struct {
	Name            string   // folder name
	Module, Version string   // patched module
	Test            string   // path of test.go.txt in the module
	Run             string   // -run pattern for the tests of test.go.txt
	Packages        []string // packages whose tests must pass with the patch
	Skip            string   // -skip pattern for tests that also fail without the patch
	Files           []file
}

// file contains the changes of a file.
type file struct {
	Name  string
	Hunks []hunk
}

// hunk is a hunk of a diff. Its first old line is line From, counted from 1.
type hunk struct {
	From     int
	Old, New []string
	Context  int // number of leading or trailing context lines, whichever is larger
}

var header = regexp.MustCompile(`^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@`)

func readPatches(t *testing.T) (patches []patch) {
	t.Helper()
	names, err := filepath.Glob("*/change.patch")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		p, err := readPatch(name)
		require.NoError(t, err, name)
		patches = append(patches, p)
	}
	return patches
}

func readPatch(name string) (p patch, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return p, err
	}
	p.Name = filepath.Dir(name)
	head, diff, ok := strings.Cut(string(data), "\n\ndiff --git ")
	if !ok {
		return p, fmt.Errorf("no diff after the keys")
	}
	for line := range strings.SplitSeq(head, "\n") {
		key, value, _ := strings.Cut(line, ": ")
		switch key {
		case "Module":
			p.Module, p.Version, _ = strings.Cut(value, " ")
		case "Test":
			p.Test = value
		case "Run":
			p.Run = value
		case "Packages":
			p.Packages = strings.Fields(value)
		case "Skip":
			p.Skip = value
		default:
			return p, fmt.Errorf("unknown key %q", key)
		}
	}
	if p.Module == "" || p.Version == "" || p.Test == "" || p.Run == "" || len(p.Packages) == 0 {
		return p, fmt.Errorf("a key is missing: %+v", p)
	}
	p.Files, err = parseDiff(strings.TrimSuffix("diff --git "+diff, "\n"))
	return p, err
}

// parseDiff parses the output of `git diff`. It supports only changes to existing files.
func parseDiff(diff string) (files []file, err error) {
	lines := strings.Split(diff, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch m := header.FindStringSubmatch(line); {
		case strings.HasPrefix(line, "diff --git "), strings.HasPrefix(line, "--- a/"):
		case strings.HasPrefix(line, "+++ b/"):
			files = append(files, file{Name: strings.TrimPrefix(line, "+++ b/")})
		case m != nil && len(files) > 0:
			h, old, added := hunk{}, length(m[2]), length(m[4])
			h.From, _ = strconv.Atoi(m[1])
			before, after, changed := 0, 0, false
			for ; len(h.Old) < old || len(h.New) < added; i++ {
				if i+1 >= len(lines) {
					return nil, fmt.Errorf("line %d: the hunk is cut short", i+1)
				}
				body := lines[i+1]
				if body == "" {
					body = " "
				}
				switch body[0] {
				case ' ':
					h.Old, h.New = append(h.Old, body[1:]), append(h.New, body[1:])
					if after++; !changed {
						before++
					}
				case '-':
					h.Old, after, changed = append(h.Old, body[1:]), 0, true
				case '+':
					h.New, after, changed = append(h.New, body[1:]), 0, true
				default:
					return nil, fmt.Errorf("line %d: %q in a hunk", i+2, body)
				}
			}
			h.Context = max(before, after)
			last := &files[len(files)-1]
			last.Hunks = append(last.Hunks, h)
		default:
			return nil, fmt.Errorf("line %d: %q", i+1, line)
		}
	}
	return files, nil
}

// length parses a line count in a hunk header. An omitted count is 1.
func length(text string) int {
	if text == "" {
		return 1
	}
	n, _ := strconv.Atoi(text)
	return n
}

// apply applies the changes to the text of a file. The old lines of a hunk must be at line From. If
// shifted is true, they may be at another line, as after another patch.
func (f file) apply(text string, shifted bool) (string, error) {
	lines := strings.Split(text, "\n")
	grown := 0
	for i, h := range f.Hunks {
		at := h.From - 1 + grown
		stands := func(at int) bool {
			return at >= 0 && at+len(h.Old) <= len(lines) && slices.Equal(lines[at:at+len(h.Old)], h.Old)
		}
		for off := 1; shifted && !stands(at) && off < len(lines); off++ {
			for _, other := range []int{at - off, at + off} {
				if stands(other) {
					at = other
					break
				}
			}
		}
		if !stands(at) {
			return "", fmt.Errorf("%s: hunk %d does not fit at line %d", f.Name, i+1, at+1)
		}
		lines = slices.Replace(lines, at, at+len(h.Old), h.New...)
		grown = at - (h.From - 1) + len(h.New) - len(h.Old)
	}
	return strings.Join(lines, "\n"), nil
}
