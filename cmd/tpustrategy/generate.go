package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/child"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/lm/decoder"
	"github.com/tpustrategy/tpustrategy/lm/generate"
	"github.com/tpustrategy/tpustrategy/lm/pretrained"
	"github.com/tpustrategy/tpustrategy/lm/text"
	"github.com/tpustrategy/tpustrategy/lm/weights"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

type generateCmd struct {
	Model       string  `arg:"" help:"Folder with a Llama model from Hugging Face: config.json, tokenizer.json and safetensors files." type:"localpath"`
	Prompt      string  `arg:"" help:"Text to continue."`
	MaxTokens   int     `help:"Maximum number of generated tokens." default:"128"`
	Temperature float64 `help:"Divisor of the logits; 0 selects the most likely token." default:"0.7"`
	TopK        int     `help:"Sample from this number of the most likely tokens; 0 is all tokens." default:"50"`
	TopP        float64 `help:"Sample from the most likely tokens with this total probability; 0 is all tokens."`
	Seed        uint64  `help:"Seed of the random numbers." default:"1"`
	CPU         int     `name:"cpu" help:"Run on this number of CPU devices instead of a TPU."`
	Logical     int     `help:"Number of logical devices over which the model is sharded." default:"1"`
	Precision   string  `help:"Precision of the computation: f32 or bf16." enum:"f32,bf16" default:"f32"`
	Plugin      string  `help:"Path of the plugin. Default: the installed plugin." type:"localpath"`
}

func (generateCmd) Help() string {
	return `Continues a text with a Llama model. The tokenizer must be a byte-level BPE, as in Llama 3.

Examples:
  tpustrategy generate models/llama-3-8b "The capital of France is" --logical 4 --precision bf16
  tpustrategy generate models/tiny "Once upon a time" --cpu 1 --temperature 0`
}

// generateAnswer is the JSON output of the generate command.
type generateAnswer struct {
	Prompt string `json:"prompt"`
	Text   string `json:"text"`
	Tokens int    `json:"tokens"`
	// Stopped is true if the model generated its end-of-text token.
	Stopped bool `json:"stopped"`
	// Seconds is the duration of the generation, including compilation.
	Seconds float64 `json:"seconds"`
}

func (c *generateCmd) Run(ctx context.Context, a *app, root *cli) error {
	switch {
	case c.MaxTokens < 1:
		return usageErrorf("generate", "give a number from 1", "--max-tokens %d", c.MaxTokens)
	case c.Logical < 1 || c.CPU < 0:
		return usageErrorf("generate", "give positive numbers", "--logical %d, --cpu %d", c.Logical, c.CPU)
	case c.CPU == 0 && c.Plugin == "" && !system.HasTPU():
		return &failure{Category: "missing", Message: "generate: this host has no TPU; give --cpu 1 to run on a CPU device"}
	}
	if c.Temperature == 0 {
		c.TopK = 0
	}
	notice := func([]byte) {}
	if !root.JSON {
		fmt.Fprint(a.stdout, c.Prompt)
		notice = func(line []byte) {
			var piece []byte // may end within a UTF-8 sequence
			if json.Unmarshal(line, &piece) == nil {
				_, _ = a.stdout.Write(piece)
			}
		}
	}
	answer, err := a.runChild(ctx, "generating", childRequest{Generate: c}, child.Command{Env: a.quietEnviron(),
		OnNotice: notice})
	if !root.JSON {
		fmt.Fprintln(a.stdout)
	}
	if err != nil {
		return err
	}
	if root.JSON {
		return a.printJSON(answer.Generate)
	}
	return nil
}

// generateInChild generates text. It is called in a child process, and sends each piece of text to
// the parent process.
func generateInChild(ctx context.Context, c *generateCmd) (_ *generateAnswer, err error) {
	tokenizer, err := text.LoadBPE(filepath.Join(c.Model, "tokenizer.json"), "")
	if err != nil {
		return nil, newUsageError("generate", err)
	}
	config, prompt, err := c.readModel(tokenizer)
	if err != nil {
		return nil, newUsageError("generate", err)
	}
	var policy precision.Policy
	if c.Precision != "f32" {
		if policy, err = precision.ParsePolicy(c.Precision); err != nil {
			return nil, newUsageError("generate", err)
		}
	}
	sys, err := system.Open(ctx, system.Options{CPUDevices: c.CPU, Plugin: c.Plugin})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sys.Close()) }()
	strat, err := strategy.New(sys, strategy.Options{Replicas: 1, LogicalDevices: c.Logical, Variables: decoder.Rules()})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, strat.Close()) }()
	store, f, err := c.loadVariables(ctx, strat)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	g, err := generate.New(strat, store, config.Logits, generate.Options{Layers: config.Layers, KeyHeads: config.KeyHeads,
		HeadSize: config.FeaturesPerHead(), Vocabulary: config.Vocabulary, MaxLength: len(prompt) + c.MaxTokens,
		Precision: policy})
	if err != nil {
		return nil, newUsageError("generate", err)
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	answer, start := &generateAnswer{Prompt: c.Prompt}, time.Now()
	outputs, err := g.Generate(ctx, [][]int32{prompt}, generate.Sampling{MaxTokens: c.MaxTokens,
		Temperature: c.Temperature,
		TopK:        c.TopK, TopP: c.TopP, Seed: c.Seed, Stop: []int32{tokenizer.Separator()},
		Stream: func(_ int, tokens []int32) error {
			piece, err := tokenizer.AppendText(nil, tokens)
			if err != nil {
				return err
			}
			answer.Text += string(piece)
			line, err := json.Marshal(piece)
			child.SendNotice(line)
			return err
		}})
	if err != nil {
		return nil, err
	}
	answer.Tokens, answer.Stopped, answer.Seconds = len(outputs[0].Tokens), outputs[0].Stopped, time.Since(start).Seconds()
	return answer, nil
}

// readModel reads config.json. It returns the decoder, and the tokens of the prompt including the
// model's begin-of-text token if the model has one.
func (c *generateCmd) readModel(tokenizer *text.BPE) (config decoder.Config, prompt []int32, err error) {
	of, err := weights.ReadConfig(c.Model)
	switch {
	case err != nil:
		return config, nil, err
	case of.Type != "llama" || of.RotaryScaling != "":
		return config, nil, &errkind.Fault{Op: c.Model, Class: errkind.NotImplementedError,
			Reason: fmt.Sprintf("the model is of type %q with rotary scaling %q", of.Type, of.RotaryScaling),
			Hint:   "use a Llama model without scaling, or package lm/generate with your own model"}
	case tokenizer.Vocabulary() > of.Vocabulary:
		return config, nil, &errkind.Fault{Op: c.Model, Class: errkind.ValueError,
			Reason: fmt.Sprintf("the tokenizer has %d tokens, but the model has %d", tokenizer.Vocabulary(), of.Vocabulary),
			Hint:   "use the tokenizer.json of the model"}
	}
	data, err := files.ReadFile(filepath.Join(c.Model, "config.json"), 1<<20)
	if err != nil {
		return config, nil, err
	}
	var special struct {
		Begin *int32 `json:"bos_token_id"`
	}
	if json.Unmarshal(data, &special) == nil && special.Begin != nil && int(*special.Begin) < of.Vocabulary {
		prompt = append(prompt, *special.Begin)
	}
	prompt = tokenizer.Append(prompt, []byte(c.Prompt))
	if len(prompt) == 0 {
		return config, nil, &errkind.Fault{Op: "prompt", Reason: "it is empty", Hint: "give a text to continue",
			Class: errkind.ValueError}
	}
	config = decoder.Config{Layers: of.Layers, Width: of.Width, Heads: of.Heads, KeyHeads: of.KeyHeads, Hidden: of.Hidden,
		Vocabulary: of.Vocabulary, Sequence: len(prompt) + c.MaxTokens, Batch: 1, RotaryBase: of.RotaryBase,
		Epsilon: of.Epsilon}
	config.HeadSize = of.HeadSize
	return config, prompt, config.Validate(1, c.Logical, 1)
}

// loadVariables returns a store that reads the model's variables from the files. The caller must
// keep the files open until the variables are read.
func (c *generateCmd) loadVariables(ctx context.Context, strat *strategy.TPUStrategy) (*model.Store, *weights.File,
	error) {
	config, err := weights.ReadConfig(c.Model)
	if err != nil {
		return nil, nil, err
	}
	f, err := weights.Open(c.Model)
	if err != nil {
		return nil, nil, err
	}
	store := model.NewStore()
	_, err = pretrained.Load(ctx, strat, store, f, weights.LlamaRules(config, weights.DenseNames()), pretrained.Options{})
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return store, f, nil
}
