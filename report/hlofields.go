package report

import (
	"errors"

	"github.com/tpustrategy/tpustrategy/internal/protoint"
)

// maxDepth bounds nested shapes and calls of a damaged program.
const maxDepth = 64

// maxDevices bounds the devices that a damaged program can speak of.
const maxDevices = 1 << 20

// decode reads a message. Errors match ErrProgram.
func decode(m []byte, to protoint.Into) error {
	err := to.Read(m)
	if err != nil && !errors.Is(err, ErrProgram) {
		return malformed(err, "")
	}
	return err
}

// one is the place of a message that parse reads, and each that of a repeated one.
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
