package report

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tpustrategy/tpustrategy/internal/protoint"
)

// maxDepth bounds nested shapes and calls of a damaged program.
const maxDepth = 64

// maxDevices bounds the devices that a damaged program can speak of.
const maxDevices = 1 << 20

// value is a field's value: a number, or bytes.
type value struct {
	number uint64
	bytes  []byte
	packed bool
}

// numbers appends a repeated number, packed or not.
func (v value) numbers(list []uint64) ([]uint64, error) {
	list, err := protoint.Numbers(list, protoint.Field{Value: v.number, Bytes: v.bytes})
	if err != nil {
		return nil, malformed(err, "")
	}
	return list, nil
}

// fields walks a message's numbers and length-delimited fields.
func fields(m []byte, visit func(n protowire.Number, v value) error) error {
	for f, err := range protoint.Fields(m) {
		if err != nil {
			return malformed(err, "")
		}
		if err := visit(f.Number, value{f.Value, f.Bytes, f.Bytes != nil}); err != nil {
			return err
		}
	}
	return nil
}
