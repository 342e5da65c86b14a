package text_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lm/text"
)

func TestTheStandardLibraryHasNeitherTheGoCommandNorTests(t *testing.T) {
	files, err := text.StandardLibrary(t.Context())
	require.NoError(t, err)
	assert.Contains(t, files.Names(), "fmt/print.go")
	for _, name := range files.Names() {
		require.False(t, strings.HasPrefix(name, "cmd/") || strings.HasSuffix(name, "_test.go"), name)
	}
	assert.Greater(t, files.Bytes(), int64(20<<20))
}

func TestACorpusIsTheSameAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("the quick brown fox\n", 500)), 0o600))
	files, err := text.SingleFile(path)
	require.NoError(t, err)
	for _, vocabulary := range []int{256, 270} {
		a, err := text.NewCorpus(t.Context(), files, text.CorpusOptions{Vocabulary: vocabulary, HeldOut: 0.1, Seed: 1})
		require.NoError(t, err)
		b, err := text.LoadCorpus(t.Context(), path, text.CorpusOptions{Vocabulary: vocabulary, HeldOut: 0.1, Seed: 1})
		require.NoError(t, err)
		assert.Equal(t, vocabulary, a.Tokenizer.Vocabulary())
		assert.Equal(t, a.Training.Len(), b.Training.Len())
		assert.Equal(t, int64(10000), a.Training.Bytes()+a.HeldOut.Bytes())
		assert.Less(t, a.Gzip, a.Unigram, "the text repeats itself")
	}
	_, err = text.NewCorpus(t.Context(), files, text.CorpusOptions{Vocabulary: 100, HeldOut: 0.1})
	assert.Equal(t, errkind.ValueError, errkind.KindOf(err), "%v", err)
	_, err = text.NewCorpus(t.Context(), files, text.CorpusOptions{HeldOut: 1})
	assert.Equal(t, errkind.ValueError, errkind.KindOf(err), "%v", err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = text.NewCorpus(ctx, files, text.CorpusOptions{HeldOut: 0.1})
	assert.ErrorIs(t, err, context.Canceled)
}
