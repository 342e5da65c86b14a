package hlo

import (
	"errors"

	"github.com/tpustrategy/tpustrategy/internal/protoint"
)

// maxDepth bounds nested shapes and calls of a malformed program.
const maxDepth = 64

// maxDevices bounds the number of devices in a malformed program.
const maxDevices = 1 << 20

func decode(m []byte, to protoint.Scanner) error {
	err := to.Read(m)
	if err != nil && !errors.Is(err, ErrProgram) {
		return malformed(err, "")
	}
	return err
}

// one returns a function for a message field that occurs once. The function decodes the message
// with parse and stores it in dst.
func one[T any](dst *T, parse func([]byte) (T, error)) func([]byte) error {
	return func(b []byte) (err error) {
		*dst, err = parse(b)
		return err
	}
}

// each returns a function for a repeated message field. The function decodes the message with parse
// and appends it to list.
func each[T any](list *[]T, parse func([]byte) (T, error)) func([]byte) error {
	return func(b []byte) error {
		x, err := parse(b)
		*list = append(*list, x)
		return err
	}
}
