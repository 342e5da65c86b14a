package logical_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestParseAnnotationIsInverseOfString(t *testing.T) {
	for text, a := range map[string]logical.Annotation{
		"none":                   {},
		"replicate":              logical.Replicated(),
		"assign=3":               logical.AssignTo(3),
		"1,2":                    logical.SplitInto(1, 2),
		"4":                      logical.SplitInto(4),
		"()":                     logical.SplitOverAxes(),
		"-,model,expert+model":   logical.SplitOverAxes("-", "model", "expert+model"),
		`"none","4","replicate"`: logical.SplitOverAxes("none", "4", "replicate"),
	} {
		assert.Equal(t, text, a.String())
		read, err := logical.ParseAnnotation(text)
		require.NoError(t, err)
		assert.True(t, a.Equal(read), text)
	}
	for _, text := range []string{"", "1,a", "assign=", "a?", "a,replicated=b", "over({a})", "split(1, 2)"} {
		_, err := logical.ParseAnnotation(text)
		assert.ErrorIs(t, err, sharding.ErrSyntax, text)
	}
	assert.True(t, logical.SplitOverAxes("", "a,b").Equal(logical.SplitOverAxes(" - ", "a + b")),
		"entries may contain spaces and commas")
}

func FuzzAnnotation(f *testing.F) {
	f.Add("-,a+b", "model", 3)
	f.Add("1,2", "none", -1)
	f.Add(`"a b",assign`, "a+,b", 0)
	f.Fuzz(func(t *testing.T, text, entry string, n int) {
		all := []logical.Annotation{logical.SplitOverAxes(entry), logical.SplitOverAxes("", entry), logical.SplitInto(n),
			logical.SplitInto(1, n), logical.AssignTo(n)}
		if read, err := logical.ParseAnnotation(text); err == nil {
			all = append(all, read)
		}
		for _, a := range all {
			read, err := logical.ParseAnnotation(a.String())
			require.NoError(t, err, a)
			require.True(t, a.Equal(read), a)
		}
	})
}
