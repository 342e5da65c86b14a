package main

import (
	"io"

	"github.com/tpustrategy/tpustrategy/internal/plain"
)

// checkedOutput is the standard output. It escapes control characters, because answers contain untrusted
// text. It records write errors, so that a command whose output was not written fails.
type checkedOutput struct {
	w    io.Writer
	text *plain.Writer
	err  error
}

func newOutput(w io.Writer) *checkedOutput {
	o := &checkedOutput{w: w}
	o.text = plain.NewWriter(rawOutput{o})
	return o
}

func (o *checkedOutput) Write(p []byte) (int, error) { return o.text.Write(p) }

// rawOutput writes bytes to an output without escaping.
type rawOutput struct{ *checkedOutput }

func (o rawOutput) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// rawStdout returns the standard output without escaping, for a drawing that moves the cursor or for a
// file.
func (a *app) rawStdout() io.Writer {
	if o, ok := a.stdout.(*checkedOutput); ok {
		return rawOutput{o}
	}
	return a.stdout
}
