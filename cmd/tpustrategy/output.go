package main

import "io"

// output is the standard output. It remembers that a write failed, so that no command ends well
// whose answer did not arrive.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}
