package main

import (
	"io"

	"github.com/tpustrategy/tpustrategy/internal/plain"
)

// output is the standard output. It escapes control characters, because answers contain untrusted
// text. It records write errors, so that a command whose output was not written fails.
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

// bytesTo writes bytes to an output without escaping.
type bytesTo struct{ *output }

func (o bytesTo) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// bytes returns the standard output without escaping, for a drawing that moves the cursor or for a
// file.
func (a *app) bytes() io.Writer {
	if o, ok := a.stdout.(*output); ok {
		return bytesTo{o}
	}
	return a.stdout
}
