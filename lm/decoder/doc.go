// Package decoder implements a Llama-style transformer decoder with GoMLX layers, for command gpt.
// [Config] contains the sizes, and [Preset] returns a predefined configuration. The layers are a
// loop in the program, and the matrices are sharded over the logical devices ([Rules]).
package decoder
