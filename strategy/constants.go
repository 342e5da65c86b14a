package strategy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"reflect"
	"sync"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// A large constant in a program's text makes the text as large as the tensor, and the compiler folds
// what the step computes of it. So a tensor that a step closes over becomes an argument of the program
// when it has at least largeConstant bytes. Its value is an unlisted variable that the strategy owns:
// it is copied to the devices once, before the first run of a program that uses it, and freed when the
// strategy closes. The argument's name has a hash of the value, so that programs over different values
// have different texts, which processes compare and caches are keyed by.

// largeConstant is the size from which on a constant becomes an argument, in bytes.
const largeConstant = 1 << 20

// constants are the large constants of a strategy's programs.
type constants struct {
	mu     sync.Mutex
	byName map[string]*Variable
}

// constant returns the name of the argument that a constant becomes, or "" for one that stays in the
// program's text: a small one, and one whose elements are all equal.
func (s *TPUStrategy) constant(flat any, dims []int) string {
	value := reflect.ValueOf(flat)
	if value.Kind() != reflect.Slice || value.Len() == 0 {
		return ""
	}
	dtype := dtypes.FromGoType(value.Type().Elem())
	shape := shapes.Make(dtype, dims...)
	if dtype.Bits() < 8 || shape.ByteSize() < largeConstant || shape.Size() != value.Len() || allEqual(value) {
		return ""
	}
	hash := sha256.New()
	fmt.Fprint(hash, shape)
	if binary.Write(hash, binary.LittleEndian, flat) != nil {
		return "" // such as a slice of int, whose size depends on the machine
	}
	name := fmt.Sprintf("constant_%x", hash.Sum(nil)[:16])
	s.constants.mu.Lock()
	defer s.constants.mu.Unlock()
	if s.constants.byName[name] != nil {
		return name
	}
	tensor := tensors.FromShape(shape)
	tensor.MustMutableFlatData(func(to any) { reflect.Copy(reflect.ValueOf(to), value) })
	v := &Variable{strategy: s, path: name, dtype: dtype, shape: append([]int(nil), dims...), synchronization: OnWrite, unlisted: true}
	v.constant.Store(tensor)
	if s.constants.byName == nil {
		s.constants.byName = map[string]*Variable{}
	}
	s.constants.byName[name] = v
	return name
}

// allEqual reports whether all elements of a slice are equal.
func allEqual(slice reflect.Value) bool {
	first := slice.Index(0).Interface()
	for i := 1; i < slice.Len(); i++ {
		if slice.Index(i).Interface() != first {
			return false
		}
	}
	return true
}

// constantOf returns the variable of a constant by the name of its argument, or nil.
func (s *TPUStrategy) constantOf(name string) *Variable {
	s.constants.mu.Lock()
	defer s.constants.mu.Unlock()
	return s.constants.byName[name]
}

// upload copies a constant to the devices if it is not there.
func (v *Variable) upload(ctx context.Context) error {
	all := &v.strategy.constants
	all.mu.Lock()
	defer all.mu.Unlock()
	tensor := v.constant.Load()
	if tensor == nil {
		return nil
	}
	fresh, err := v.copied(ctx, tensor)
	if err != nil {
		return fault.Of("a constant of shape "+v.Shape().String(), err, "")
	}
	if err := v.take(fresh); err != nil {
		return err
	}
	if err := v.strategy.ownVariables(v); err != nil {
		return err
	}
	v.constant.Store(nil)
	return nil
}
