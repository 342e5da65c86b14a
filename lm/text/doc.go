// Package text converts text files to windows of tokens for the training and evaluation of a
// language model. It lists files, splits off held-out texts, tokenizes, and computes bits per byte.
//
// The package is pure Go and does not use devices. Its datasets are [input.Dataset] values.
//
// # From files to batches
//
// [ListFiles], [GoSources] and [SingleFile] return a list of texts, [Files]. [Files.Split]
// separates held-out texts from training texts. A [Tokenizer] converts bytes to tokens: with
// [Bytes], each byte is a token; a [BPE] has tokens for common byte sequences. [Encode] reads the
// texts and stores their tokens in memory:
//
//	files, err := text.GoSources(ctx) // part of every Go installation
//	training, heldOut, err := files.Split(0.01, 1)
//	tokens, err := text.Encode(ctx, training, text.Bytes())
//	windows, err := tokens.Windows(256, text.WindowOptions{Seed: 1})
//	batches := windows.Batch(32, true) // int32[32 257]: the inputs, and the token after the last
//
// A model reads tokens 0 to 255 of a window and predicts tokens 1 to 256. Each pass over the
// dataset yields each window once, in a different order.
//
// # Tokenizers
//
// [Train] learns a BPE from the training texts, and [BPE.Save] writes it as a tokenizer.json of
// Hugging Face's tokenizers. Store the file together with the model. [LoadBPE] reads such a file,
// and the files of models such as GPT-2, Llama 3, Qwen 2, DeepSeek, Falcon and StarCoder. Its ids
// equal the ids of the official package:
//
//	tok, err := text.Train(ctx, training, 8192, text.TrainOptions{})
//	err = tok.Save("tokenizer.json")
//	tokens, err := text.Encode(ctx, training, tok)
//
// [SplitPattern] lists the ways in which Train can split texts into words. Any bytes, UTF-8 or not,
// can be encoded and decoded without loss, with three exceptions that depend on the file: the files
// of Qwen 2 and others normalize texts to Unicode's form NFC, some files omit bytes that UTF-8
// never uses, and some added tokens strip adjacent white space. Encode returns an error for a byte
// without a token.
//
// Special tokens, such as <|endoftext|>, are found in texts, as in the official package. Use
// [BPE.SpecialAsText] for texts whose authors must not be able to write special tokens.
//
// # Separators
//
// The tokens of all texts are concatenated, with the tokenizer's separator before, between and
// after the texts. The first byte of a text is therefore predicted from the separator, and the
// separator at the end of a text is predicted too.
//
// # Memory
//
// A token uses one byte of memory for vocabularies of up to 256 tokens, two bytes for up to 65,536,
// and four bytes above. Files are read in pieces of a few MiB. The tokens of a large file therefore
// use as much memory as the file with [Bytes], and about half as much with a BPE.
//
// # Bits per byte
//
// Losses per token of models with different tokenizers are not comparable; losses per byte of text
// are. [Tokens.EvalWindows] returns windows in which each token of the held-out texts is predicted
// exactly once, and [Tokens.BitsPerByte] converts the sum of their losses to bits per byte.
// [UnigramBitsPerByte], [BigramBitsPerByte] and [GzipBitsPerByte] compute the same figure for
// simple baselines: token frequencies, frequencies of token pairs, and gzip.
package text
