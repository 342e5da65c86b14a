package main

import (
	"io"

	"github.com/tpustrategy/tpustrategy/internal/plain"
)

// checkedOutput wraps the standard output. It escapes control characters, because the output may
// contain untrusted text. It records write errors, so that the command can fail at its end.
type checkedOutput struct {
	w    io.Writer
	text *plain.Writer
	err  error
}

func newCheckedOutput(w io.Writer) *checkedOutput {
	o := &checkedOutput{w: w}
	o.text = plain.NewWriter(rawOutput{o})
	return o
}

func (o *checkedOutput) Write(p []byte) (int, error) { return o.text.Write(p) }

// rawOutput writes to the standard output without escaping control characters.
type rawOutput struct{ *checkedOutput }

func (o rawOutput) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// rawStdout returns a writer to the standard output that does not escape control characters.
func (a *app) rawStdout() io.Writer {
	if o, ok := a.stdout.(*checkedOutput); ok {
		return rawOutput{o}
	}
	return a.stdout
}
