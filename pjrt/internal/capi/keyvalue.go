package capi

/*
#include "shims.h"
*/
import "C"

import (
	"time"
	"unsafe"
)

// RequestPipe sends requests of the plugin to Go. A plugin thread writes the address of its request to a
// pipe (8 bytes in host byte order) and waits for Reply. The zero value means that there is no receiver.
type RequestPipe struct{ p *C.tps_request_pipe }

// NewRequestPipe returns a RequestPipe that writes to fd, which must be in blocking mode. The
// caller must close the RequestPipe before fd.
func NewRequestPipe(fd uintptr) (RequestPipe, bool) {
	p := C.tps_request_pipe_new(C.int(fd))
	return RequestPipe{p}, p != nil
}

// Close stops writing to the file. Later requests of the plugin are rejected.
func (r RequestPipe) Close() { C.tps_request_pipe_close(r.p) }

// These are the kinds of a Request, in addition to ApplyTransform.
const (
	Get    = int(C.TPS_GET)
	TryGet = int(C.TPS_TRY_GET)
	Put    = int(C.TPS_PUT)
)

// Request is a copy of a plugin's request. Value is set only for Put and ApplyTransform, and
// Timeout only for Get.
type Request struct {
	Kind    int
	Key     string
	Value   []byte
	Timeout time.Duration
}

// ReadRequest returns the request at an address that was read from the pipe of a RequestPipe.
func ReadRequest(address uint64) Request {
	var kind, timeout C.int
	var key, value C.tps_str
	C.tps_request_read(C.uint64_t(address), &kind, &key, &value, &timeout)
	return Request{
		Kind: int(kind), Key: goString(key), Timeout: time.Duration(timeout) * time.Millisecond,
		Value: append([]byte{}, unsafe.Slice((*byte)(unsafe.Pointer(value.p)), value.n)...),
	}
}

// Reply sends the response to a request. It must be called once for each request. b is the result
// if code is 0, and an error message otherwise.
func Reply(address uint64, code int, b []byte) {
	C.tps_request_reply(C.uint64_t(address), C.int(code), bytesPointer(b), C.size_t(len(b)))
}
