package inputcases

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

// TextFiles writes files with one number per line and returns a dataset of their numbers as
// float32.
func TextFiles(t *testing.T, files, lines int, tens bool) input.Dataset {
	t.Helper()
	dir, paths := t.TempDir(), []string(nil)
	for f := range files {
		base := f * lines
		if tens {
			base = 10 * f
		}
		var text strings.Builder
		for l := range lines {
			fmt.Fprintln(&text, base+l)
		}
		path := filepath.Join(dir, fmt.Sprintf("%03d.txt", f))
		require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o600))
		paths = append(paths, path)
	}
	return input.Lines(paths, input.FileOptions{}).Map(ParseNumber,
		input.MapOptions{Spec: input.Leaf(input.TensorSpec{Kind: input.Float32})})
}

// ParseNumber parses a line of text as float32.
func ParseNumber(_ context.Context, e input.Element) (input.Element, error) {
	text, err := input.Flat[string](e.Leaf())
	if err != nil {
		return input.Element{}, err
	}
	v, err := strconv.ParseFloat(text[0], 32)
	return input.Leaf(input.Scalar(float32(v))), err
}
