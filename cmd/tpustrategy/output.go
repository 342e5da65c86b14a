package main

import (
	"io"

	"github.com/tpustrategy/tpustrategy/internal/plain"
)

// output is the standard output. What a terminal would act on is shown and not sent: answers have
// texts of others in them. It remembers that a write failed, so that no command ends well whose
// answer did not arrive.
type output struct {
	w    io.Writer
	text *plain.Writer
	err  error
}

func newOutput(w io.Writer) *output {
	o := &output{w: w}
	o.text = plain.NewWriter(bytesTo{o})
	return o
}

func (o *output) Write(p []byte) (int, error) { return o.text.Write(p) }

// bytesTo writes bytes to an output as they are.
type bytesTo struct{ *output }

func (o bytesTo) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// bytes is the standard output for what is not text of an answer: a drawing, which moves the cursor,
// or a file.
func (a *app) bytes() io.Writer {
	if o, ok := a.stdout.(*output); ok {
		return bytesTo{o}
	}
	return a.stdout
}
