// Package pretrained loads the weights of existing models into the variables of a strategy, from
// safetensors files in the format of Hugging Face, and saves variables as such files.
//
//	files, err := weights.Open("models/llama-3-8b") // a directory with model.safetensors.index.json
//	config, err := weights.ReadConfig("models/llama-3-8b")
//	_, err = step.Compiled(ctx, shapes...)          // the model's variables are known now
//	report, err := pretrained.Load(ctx, strat, store, files,
//		weights.LlamaRules(config, weights.VariableNames{}), pretrained.Options{})
//
// # Reads and host memory
//
// Each process reads only the ranges of the files that its devices store according to the rules in
// [strategy.Options].Variables, including padding. It copies each range to its devices while it
// reads the next one, and never stores the complete value of a variable that is sharded over its
// devices. The host memory for the transfer is a sixteenth of the bytes on the process's devices,
// or the largest shard if that is more. Values are converted from the dtypes of the files to the
// dtypes of the variables, so a model with bfloat16 files can be trained with float32 variables.
//
// # Loading before the first step
//
// If no step was compiled before [Load], Load creates the variables in the store with the shapes of
// the files. Their values are read when the first step runs, also shard by shard, so the files must
// stay open until then. Load cannot check for further variables of the model in this case: compile
// the step first if a variable that is missing in the files must be an error.
//
// # The model
//
// The rules convert the layout of the weights. They do not change what a model computes. A Llama
// model needs rotary positions that rotate elements i and i + size/2 of a head (or
// weights.VariableNames.Interleaved), with the right base and scaling, and the right epsilon of its
// normalizations; weights.Config contains these values. A Gemma model multiplies its embeddings by
// the square root of the width.
package pretrained
