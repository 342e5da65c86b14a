package capi

/*
#include <stdlib.h>
#include "shims.h"
*/
import "C"

import "unsafe"

// These are the values of PJRT_NamedValue_Type.
const (
	kindString = iota
	kindInt64
	kindInt64s
	kindFloat
	kindBool
)

// NamedValue is a named option or attribute. Value must be a string, int64, []int64, float32 or bool.
type NamedValue struct {
	Name  string
	Value any
}

// newCValues copies options to C memory. The caller must call free after the options have been used.
func newCValues(values []NamedValue) (p *C.tps_NamedValue, free func()) {
	if len(values) == 0 {
		return nil, func() {}
	}
	var owned []unsafe.Pointer
	own := func(p unsafe.Pointer) unsafe.Pointer {
		owned = append(owned, p)
		return p
	}
	size := unsafe.Sizeof(C.tps_NamedValue{})
	block := own(C.calloc(C.size_t(len(values)), C.size_t(size)))
	out := unsafe.Slice((*C.tps_NamedValue)(block), len(values))
	for i, v := range values {
		o := &out[i]
		o.struct_size = C.size_t(unsafe.Offsetof(o.value_size) + unsafe.Sizeof(o.value_size))
		o.name = (*C.char)(own(unsafe.Pointer(C.CString(v.Name))))
		o.name_size = C.size_t(len(v.Name))
		o.value_size = 1
		u := unsafe.Pointer(&o.anon0)
		switch x := v.Value.(type) {
		case string:
			o._type = kindString
			o.value_size = C.size_t(len(x))
			*(*unsafe.Pointer)(u) = own(unsafe.Pointer(C.CString(x)))
		case int64:
			o._type = kindInt64
			*(*int64)(u) = x
		case []int64:
			o._type = kindInt64s
			o.value_size = C.size_t(len(x))
			list := own(C.calloc(C.size_t(len(x)+1), 8))
			copy(unsafe.Slice((*int64)(list), len(x)), x)
			*(*unsafe.Pointer)(u) = list
		case float32:
			o._type = kindFloat
			*(*float32)(u) = x
		case bool:
			o._type = kindBool
			*(*bool)(u) = x
		}
	}
	return &out[0], func() {
		for _, p := range owned {
			C.free(p)
		}
	}
}

// takeValues converts the attribute list that a C shim returned to a map. It skips values of
// unknown types. If the shim returned an error e instead, takeValues returns e as a Go error.
func (a *API) takeValues(e unsafe.Pointer, l *C.tps_list) (map[string]any, error) {
	if e != nil {
		return nil, a.goError(e)
	}
	return goValues(*l), nil
}

func goValues(l C.tps_list) map[string]any {
	out := make(map[string]any, l.n)
	// The plugin may use a newer and larger struct, so the step is its struct_size.
	for i, p := 0, l.p; i < int(l.n); i++ {
		v := (*C.tps_NamedValue)(p)
		name := C.GoStringN(v.name, C.int(v.name_size))
		u := unsafe.Pointer(&v.anon0)
		switch v._type {
		case kindString:
			out[name] = C.GoStringN(*(**C.char)(u), C.int(v.value_size))
		case kindInt64:
			out[name] = *(*int64)(u)
		case kindInt64s:
			out[name] = append([]int64{}, unsafe.Slice(*(**int64)(u), v.value_size)...)
		case kindFloat:
			out[name] = *(*float32)(u)
		case kindBool:
			out[name] = *(*bool)(u)
		}
		step := (uintptr(v.struct_size) + 7) &^ 7
		if step < unsafe.Sizeof(*v) {
			step = unsafe.Sizeof(*v)
		}
		p = unsafe.Add(p, step)
	}
	return out
}
