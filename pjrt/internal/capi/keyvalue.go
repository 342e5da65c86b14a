package capi

/*
#include "shims.h"
*/
import "C"

import (
	"time"
	"unsafe"
)

// Store is a client's side of a key-value store, in C memory. It writes the address of each question
// of the plugin to a pipe, eight bytes in the order of this machine. The zero Store is none.
type Store struct{ p *C.tps_store }

// NewStore returns a store that writes to a file, which is in blocking mode. Close it when the client
// has ended, and before the file: what is asked later is refused.
func NewStore(fd uintptr) (Store, bool) {
	p := C.tps_store_new(C.int(fd))
	return Store{p}, p != nil
}

// Close ends the use of the file.
func (s Store) Close() { C.tps_store_close(s.p) }

// The kinds of a question.
const (
	Get    = int(C.TPS_GET)
	TryGet = int(C.TPS_TRY_GET)
	Put    = int(C.TPS_PUT)
)

// Question is what a plugin wants of the store, in copies. Value is that of a Put, Timeout that of a
// Get.
type Question struct {
	Kind    int
	Key     string
	Value   []byte
	Timeout time.Duration
}

// ReadQuestion reads the question at an address that came through the pipe.
func ReadQuestion(address uint64) Question {
	var kind, timeout C.int
	var key, value C.tps_str
	C.tps_question_read(C.uint64_t(address), &kind, &key, &value, &timeout)
	return Question{
		Kind: int(kind), Key: goString(key), Timeout: time.Duration(timeout) * time.Millisecond,
		Value: append([]byte{}, unsafe.Slice((*byte)(unsafe.Pointer(value.p)), value.n)...),
	}
}

// AnswerQuestion answers it, once. b is the value where the code is 0, and else the text of an error.
func AnswerQuestion(address uint64, code int, b []byte) {
	C.tps_question_answer(C.uint64_t(address), C.int(code), bytesOf(b), C.size_t(len(b)))
}
