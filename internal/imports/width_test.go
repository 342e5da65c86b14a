package imports

import (
	"bytes"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxColumns is the limit of a line of Go. A tab counts as one column.
const maxColumns = 120

var alignment = regexp.MustCompile(` {2,}`)

// TestLinesHaveAtMost120Columns excludes lines that cannot be broken: raw strings, the output of
// examples, and a single word that is too long. Spaces that align a column are not counted.
func TestLinesHaveAtMost120Columns(t *testing.T) {
	require.NoError(t, eachFile("../..", func(path string) error {
		folder := filepath.ToSlash(filepath.Dir(path))
		if !strings.HasSuffix(path, ".go") || strings.Contains(folder, "/testdata") ||
			strings.HasSuffix(folder, "/notebook") {
			return nil
		}
		src, err := os.ReadFile(path)
		for _, line := range longLines(src) {
			assert.Fail(t, "break this line", "%s:%d has more than %d columns", path, line, maxColumns)
		}
		return err
	}))
}

func longLines(src []byte) (numbers []int) {
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	unbreakable, hasOutput := map[int]bool{}, bytes.Contains(src, []byte("// Output:\n"))
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			break
		}
		isOutput := tok == token.COMMENT && (hasOutput || strings.HasPrefix(lit, "//go:"))
		isLong := tok == token.STRING && len(lit) > maxColumns/2 && !strings.Contains(lit, " ")
		if tok == token.STRING && lit[0] == '`' || isOutput || isLong {
			first := file.Line(pos)
			for line := first; line <= first+strings.Count(lit, "\n"); line++ {
				unbreakable[line] = true
			}
		}
	}
	for i, line := range strings.Split(string(src), "\n") {
		if utf8.RuneCountInString(alignment.ReplaceAllString(line, " ")) > maxColumns && !unbreakable[i+1] {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

func TestLongLines(t *testing.T) {
	long := strings.Repeat("x, ", 50)
	src := "package p\n// " + long + "\nvar a = `\n" + long + "`\n\nvar b = \"" + long + "\"\n"
	assert.Equal(t, []int{2, 6}, longLines([]byte(src)))
}
