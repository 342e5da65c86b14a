package system_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// The test calls every method of the zero values with zero arguments.
func TestZeroValuesDoNotPanic(t *testing.T) {
	for _, zero := range []any{&system.System{}, &system.Slice{}, &system.StartError{}, &system.LockedError{}} {
		v := reflect.ValueOf(zero)
		for i := range v.NumMethod() {
			method, name := v.Method(i), fmt.Sprintf("%T.%s", zero, v.Type().Method(i).Name)
			if name == "*system.LockedError.Error" || name == "*system.StartError.Error" {
				continue // error types need a cause
			}
			var args []reflect.Value
			for j := range method.Type().NumIn() {
				in := method.Type().In(j)
				if in == reflect.TypeFor[context.Context]() {
					args = append(args, reflect.ValueOf(context.Background()))
				} else {
					args = append(args, reflect.Zero(in))
				}
			}
			assert.NotPanics(t, func() { method.Call(args) }, name)
		}
	}
}
