package report

import (
	"errors"

	"github.com/tpustrategy/tpustrategy/internal/protoint"
)

// maxDepth bounds nested shapes and calls of a malformed program.
const maxDepth = 64

// maxDevices bounds the number of devices in a malformed program.
const maxDevices = 1 << 20

// decode decodes a message. Its errors match ErrProgram.
func decode(m []byte, to protoint.Scanner) error {
	err := to.Read(m)
	if err != nil && !errors.Is(err, ErrProgram) {
		return malformed(err, "")
	}
	return err
}

// one decodes a message with parse into at. each does so for a repeated message.
func one[T any](at *T, parse func([]byte) (T, error)) func([]byte) error {
	return func(b []byte) (err error) {
		*at, err = parse(b)
		return err
	}
}

func each[T any](list *[]T, parse func([]byte) (T, error)) func([]byte) error {
	return func(b []byte) error {
		x, err := parse(b)
		*list = append(*list, x)
		return err
	}
}
