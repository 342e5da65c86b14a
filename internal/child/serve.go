package child

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Serve is a child: it reads the request from the standard input, answers it on the
// file that [Run] has left open, and returns. The process ends when its parent does,
// also in the middle of work. what names the command in the error of a process that
// Run did not start.
func Serve(what string, work func(request []byte) []byte) error {
	answers := os.NewFile(3, "answers")
	if answers == nil {
		return fmt.Errorf("%s: this is started by another program, not by hand", what)
	}
	if _, err := answers.Stat(); err != nil {
		return fmt.Errorf("%s: this is started by another program, not by hand", what)
	}
	var size [8]byte
	if _, err := io.ReadFull(os.Stdin, size[:]); err != nil {
		return fmt.Errorf("%s: reading the request: %w", what, err)
	}
	// The parent is trusted, and a request arrives whole or not at all.
	request, err := io.ReadAll(io.LimitReader(os.Stdin, int64(binary.LittleEndian.Uint64(size[:]))))
	if err == nil && uint64(len(request)) != binary.LittleEndian.Uint64(size[:]) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("%s: reading the request: %w", what, err)
	}
	go func() {
		// Nothing more comes: this returns when the parent has gone.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	_, err = answers.Write(work(request))
	return errors.Join(err, answers.Close())
}
