// Package text turns text files into the windows of tokens that a language model is trained on and
// measured with: it lists files, sets some of them apart, makes tokens of bytes, and counts bits.
//
// The package is pure Go and knows no devices. Its datasets are those of package input.
//
// # From files to batches
//
// [Under], [GoSources] and [File] say which texts there are, as a value, [Files]. [Files.Split]
// sets texts apart that no training step sees. A [Tokenizer] turns bytes into tokens: [Bytes] makes
// each byte a token, and a [BPE] has tokens for common sequences of bytes. [Encode] reads the texts
// and keeps their tokens in memory:
//
//	files, err := text.GoSources(ctx) // the standard library's sources, which are where Go is
//	training, heldOut, err := files.Split(0.01, 1)
//	tokens, err := text.Encode(ctx, training, text.Bytes())
//	windows, err := tokens.Windows(256, text.WindowOptions{Seed: 1})
//	batches := windows.Batch(32, true) // int32[32 257]: the inputs, and the token after the last
//
// A model reads tokens 0 to 255 of a window and predicts tokens 1 to 256. Each pass over the
// dataset yields each window once, in an order of its own.
//
// # Tokenizers
//
// [Train] learns a BPE from the texts that are trained on, and [BPE.Save] writes it in the form of
// Hugging Face's tokenizers. Keep the file with the model that depends on it. [LoadBPE] reads such a
// file, and the files of models such as GPT-2, Llama 3, Qwen 2, DeepSeek, Falcon and StarCoder. Its
// ids equal the ids of the official package:
//
//	tok, err := text.Train(ctx, training, 8192, text.TrainOptions{})
//	err = tok.Save("tokenizer.json")
//	tokens, err := text.Encode(ctx, training, tok)
//
// [Words] lists the ways in which Train can split texts into words. Any bytes can be encoded and come
// back exactly, UTF-8 or not, with three exceptions that depend on the file: the files of Qwen 2 and
// others bring texts to Unicode's form NFC, some files omit bytes that UTF-8 never uses, and some
// added tokens take the white space beside them. Encode returns an error for a byte without a token.
//
// Special tokens, such as <|endoftext|>, are found in texts, as in the official package. Use
// [BPE.SpecialAsText] for texts whose authors must not be able to write special tokens.
//
// # Separators
//
// The tokens of all texts stand behind each other, with the tokenizer's separator before, between
// and after the texts. The first byte of a text is thus predicted from the separator, and the
// separator that ends a text is predicted too.
//
// # Memory
//
// Tokens take one byte each for up to 256 different tokens, two for up to 65,536, and four above.
// Files are read in pieces of a few MiB. So the tokens of a file of several GB take as much memory
// as the file with [Bytes], and about half as much with a BPE.
//
// # Bits per byte
//
// The loss of two models can be compared if it is counted per byte of text: the losses per token of
// models with different tokenizers cannot. [Tokens.HeldOut] yields windows in which each token of
// the held-out texts is predicted exactly once, and [Tokens.BitsPerByte] turns the sum of its
// losses into bits per byte. [Unigram], [Bigram] and [Gzip] are the same figure for what knows less
// than a model: how common tokens are, which tokens follow which, and gzip.
package text
