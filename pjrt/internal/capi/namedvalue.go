package capi

/*
#include <stdlib.h>
#include "shims.h"
*/
import "C"

import "unsafe"

// The kinds of a named value.
const (
	kindString = iota
	kindInt64
	kindInt64s
	kindFloat
	kindBool
)

// NamedValue is one option or attribute. Value is a string, int64, []int64, float32 or bool; any
// other type is a mistake of the caller's.
type NamedValue struct {
	Name  string
	Value any
}

// named writes options into C memory. free gives it back.
func named(values []NamedValue) (p *C.tps_NamedValue, free func()) {
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

// values copies a list of attributes that the plugin owns, or returns the error in its place. A kind
// that is not known yet is left out.
func (a *API) values(e unsafe.Pointer, l *C.tps_list) (map[string]any, error) {
	if e != nil {
		return nil, a.err(e)
	}
	return valuesOf(*l), nil
}

func valuesOf(l C.tps_list) map[string]any {
	out := make(map[string]any, l.n)
	// The element size is what the plugin says, so that a grown struct still reads.
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
