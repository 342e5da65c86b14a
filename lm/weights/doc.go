// Package weights reads and writes the weights of other programs' models: safetensors files in the
// form of Hugging Face. It says which tensor becomes which variable, and reads any box of any
// variable without the rest. It knows no devices: package lm/pretrained brings variables to
// them.
//
// # Files
//
// [Open] opens one file, the index of several, or a directory with either. Only the headers are
// read. A header that lies is an error before anything is read: offsets that overlap or leave
// gaps, shapes whose bytes are not there, an index that names files outside of its directory,
// tensors that are in two files or in none.
//
// # Rules
//
// [Rules] say what becomes of each tensor, by patterns on their names. They are data, in Go or JSON:
//
//	weights.Rules{
//		// [out, in] in the file, [in, out] in the model; layer {1} of a stack of all layers
//		{Tensor: `model\.layers\.(\d+)\.mlp\.up_proj\.weight`, To: []weights.Target{{
//			Variable: "/layers/up/dense/weights", Stack: "{1}", Steps: []weights.Step{{Transpose: []int{1, 0}}}}}},
//		// one tensor that two variables share
//		{Tensor: `model\.embed_tokens\.weight`, To: []weights.Target{
//			{Variable: "/embedding/embeddings"},
//			{Variable: "/head/dense/weights", Steps: []weights.Step{{Transpose: []int{1, 0}}}}}},
//		{Tensor: `.*\.inv_freq`, Ignore: true},
//	}
//
// A target may reshape, transpose and cut a tensor (the queries of a fused "qkv"), put it beside
// others in one variable ([Part]), make it one layer of a stack, and add a constant. [Llama] and
// [Gemma] have the rules for models of those kinds, with the sizes that [ReadConfig] finds.
//
// [NewPlan] matches tensors, rules and variables, and refuses everything that is not said: a tensor
// that no rule names, or two; a variable that is not filled, or twice; a shape that does not fit
// after the steps. The [*PlanError] lists all of it, with both shapes and what to write.
//
// # Dtypes
//
// Floats become floats of another size: F64, F32, BF16, F16, F8_E5M2 and F8_E4M3 of a file become
// float64, float32, bfloat16 or float16, rounded to the nearest. NaNs and infinities stay. A finite
// number that would become infinite is an error. Integers and booleans keep their dtype.
//
// # Reading and writing
//
// [Plan.Read] reads a box of a variable: the ranges of the files that it needs, to where they
// belong, converted and transposed a megabyte at a time. [Plan.Write] writes variables as files by
// the same rules, the other way round.
package weights
