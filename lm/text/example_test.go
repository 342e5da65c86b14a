package text_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/tpustrategy/tpustrategy/lm/text"
)

// The windows of a text of 24 bytes: each begins with the last token of the one before.
func ExampleTokens_Windows() {
	tokens, err := text.EncodeText([]byte("the quick brown fox runs"), text.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	windows, err := tokens.Windows(8, text.WindowOptions{InOrder: true})
	if err != nil {
		log.Fatal(err)
	}
	for e, err := range windows.All(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		window, err := text.Bytes().AppendText(nil, e.Leaf().Flat().([]int32))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%q\n", window)
	}
	// Output:
	// "\x00the quic"
	// "ck brown "
	// " fox runs"
}

// Some files are held out. A model should need fewer bits for them than the simple baselines.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for i := range 20 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.txt", i)),
			[]byte("to be or not to be, that is the question\n"), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	ctx := context.Background()
	files, err := text.ListFiles(dir, "*.txt")
	if err != nil {
		log.Fatal(err)
	}
	training, heldOut, err := files.Split(0.1, 1)
	if err != nil {
		log.Fatal(err)
	}
	known, err := text.Encode(ctx, training, text.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	unknown, err := text.Encode(ctx, heldOut, text.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	unigram, err := text.UnigramBitsPerByte(ctx, known, unknown)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d texts to train on, %d held out: %d bytes, %.2f bits for each\n", training.Len(), heldOut.Len(),
		unknown.Bytes(), unigram)
	// Output:
	// 18 texts to train on, 2 held out: 82 bytes, 4.03 bits for each
}

// A BPE has tokens for common sequences, and its words include the preceding space.
func ExampleTrainText() {
	tok, err := text.TrainText(context.Background(), []byte("the cat and the hat and the bat"), 264, text.TrainOptions{})
	if err != nil {
		log.Fatal(err)
	}
	ids := tok.Append(nil, []byte("the bath"))
	for _, id := range ids {
		token, _ := tok.Token(id)
		fmt.Printf("%d %q\n", id, token)
	}
	// Output:
	// 259 "the"
	// 221 " "
	// 66 "b"
	// 257 "at"
	// 72 "h"
}
