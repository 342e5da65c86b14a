package system

import (
	"context"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// errZero is the error of a zero System or Slice.
var errZero = &errkind.Fault{Op: "system", Reason: "it is a zero value", Err: pjrt.ErrClosed, Hint: "Open and Describe make one"}

// noRuntime is that of the zero System.
type noRuntime struct{}

func (noRuntime) PlatformName() string    { return "" }
func (noRuntime) Devices() []*pjrt.Device { return nil }
func (noRuntime) Addressable(int) bool    { return false }
func (noRuntime) Close() error            { return nil }

func (noRuntime) BufferFromHost(context.Context, []byte, pjrt.DType, []int, *pjrt.Device) (*pjrt.Buffer, error) {
	return nil, errZero
}

func (noRuntime) RefillFromHost(context.Context, *pjrt.Buffer, []byte, pjrt.DType, []int, *pjrt.Device) error {
	return errZero
}

func (noRuntime) Compile(context.Context, pjrt.Program, pjrt.CompileOptions) (Executable, error) {
	return nil, errZero
}
