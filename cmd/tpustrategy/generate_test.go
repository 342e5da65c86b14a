package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/lm/text"
	"github.com/tpustrategy/tpustrategy/lm/weights"
)

// tinyLlama writes a Llama model with irregular weights and its tokenizer.
func tinyLlama(t *testing.T) (dir string) {
	dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"model_type": "llama", "hidden_size": 16,
		"intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 264, "bos_token_id": 1}`), 0o644))
	tokenizer, err := text.TrainText(t.Context(), bytes.Repeat([]byte("the cat sat on the mat. "), 50), 264,
		text.TrainOptions{})
	require.NoError(t, err)
	require.NoError(t, tokenizer.Save(filepath.Join(dir, "tokenizer.json")))
	config, err := weights.ReadConfig(dir)
	require.NoError(t, err)
	plan, err := weights.NewPlan(config.Tensors("F32"), nil, weights.LlamaRules(config, weights.DenseNames()),
		weights.PlanOptions{Create: dtypes.Float32})
	require.NoError(t, err)
	require.NoError(t, plan.Write(t.Context(), dir, config.Tensors("F32"), func(_ context.Context,
		v weights.Variable) ([]byte, error) {
		n := 1
		for _, d := range v.Shape {
			n *= d
		}
		var data []byte
		for i := range n {
			bits := math.Float32bits(float32(math.Sin(float64(len(v.Path)) + 12.9898*float64(i))))
			data = append(data, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
		}
		return data, nil
	}, weights.WriteOptions{}))
	return dir
}

func TestGenerateContinuesAText(t *testing.T) {
	plugin, dir := plugintest.Path(t, "cpu"), tinyLlama(t)
	executable, err := os.Executable()
	require.NoError(t, err)
	generate := func(args ...string) string {
		var stdout, stderr bytes.Buffer
		a := &app{stdout: &stdout, stderr: &stderr, stdin: strings.NewReader(""), getenv: os.Getenv, environ: os.Environ(),
			executable: executable, argv0: "tpustrategy"}
		code := a.run(t.Context(), append([]string{"generate", dir, "the cat", "--plugin", plugin, "--max-tokens", "12",
			"--temperature", "0"}, args...))
		require.Zero(t, code, "%s%s", &stdout, &stderr)
		return stdout.String()
	}
	plain := generate("--cpu", "1")
	assert.True(t, len(plain) > len("the cat\n") && plain[:7] == "the cat", plain)
	var got generateAnswer
	require.NoError(t, json.Unmarshal([]byte(generate("--cpu", "2", "--logical", "2", "--json")), &got))
	assert.Equal(t, "the cat", got.Prompt)
	assert.Equal(t, 12, got.Tokens)
	assert.NotEmpty(t, got.Text)
}
