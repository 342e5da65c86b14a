// Package weights reads and writes the weights of models of other programs: safetensors files in
// the format of Hugging Face. It maps tensors to variables, and can read any box of any variable
// without the rest. It does not use devices: package lm/pretrained loads variables to devices.
//
// # Files
//
// [Open] opens a single file, an index of several files, or a directory with either of them. It
// only reads the headers. Inconsistent headers are an error: offsets that overlap or leave gaps,
// shapes that exceed the file, an index with files outside of its directory, and tensors that are
// in two files or in none.
//
// # Rules
//
// [Rules] map tensors to variables by patterns for their names. Rules are data, in Go or JSON:
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
// A target can reshape, transpose and slice a tensor (such as the queries of a fused "qkv"),
// concatenate it with others in one variable ([Segment]), store it as one layer of a stack, and add a
// constant. [LlamaRules] and [GemmaRules] return the rules for models of these kinds, with the
// sizes that [ReadConfig] reads.
//
// [NewPlan] matches tensors, rules and variables. It requires a rule for everything. These are
// errors: a tensor that no rule or more than one rule matches, a variable that is not filled or is
// filled twice, and a shape that does not fit after the steps. The [*PlanError] lists all errors,
// with the shapes and suggestions.
//
// # Dtypes
//
// Floats can be converted to floats of another size: F64, F32, BF16, F16, F8_E5M2 and F8_E4M3 in a
// file to float64, float32, bfloat16 or float16, rounded to the nearest value. NaNs and infinities
// are preserved. A finite number that would become infinite is an error. Integers and booleans keep
// their dtype.
//
// # Reading and writing
//
// [Plan.Read] reads a box of a variable: it reads only the required ranges of the files, and
// converts and transposes one megabyte at a time. [Plan.Write] writes variables to files by the
// same rules in the reverse direction.
package weights
