// Package pretrained gives the variables of a strategy the weights of other programs' models, from
// safetensors files in the form of Hugging Face, and writes them as such files.
//
//	files, err := weights.Open("models/llama-3-8b") // a directory with model.safetensors.index.json
//	config, err := weights.ReadConfig("models/llama-3-8b")
//	_, err = step.Compiled(ctx, shapes...)          // the model's variables are known now
//	report, err := pretrained.Load(ctx, strat, store, files, weights.Llama(config, weights.Names{}), pretrained.Options{})
//
// # What a process reads and holds
//
// Each process reads the ranges of the files that its devices hold, by the rules of
// [strategy.Options].Variables, padding included, and copies them to its devices while it reads the
// next ones. It never holds a whole variable that its devices share.
// On the way it holds a sixteenth of its devices' bytes, or one device's part of one variable if
// that is more. The files' dtypes become those of the variables: a model whose files have bfloat16
// is trained with float32 variables, if it is made so.
//
// # Before the first step
//
// A [Load] before any step was compiled makes the variables in the store, in the shapes that the
// files give. Their values are read when the first step runs, by parts as well; keep the files open
// until then. What the model makes besides is not known then: compile first where a variable that
// the files lack is to be an error.
//
// # The model
//
// The rules change the form of weights and not what a model computes. A Llama needs rotary
// positions that turn elements i and i + size/2 of a head (or weights.Names.Interleaved), their
// base and scaling, and the epsilon of its normalisations: weights.Config has them. A Gemma
// multiplies its embeddings by the root of the width.
package pretrained
