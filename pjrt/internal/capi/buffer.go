package capi

/*
#include "shims.h"
*/
import "C"

import "unsafe"

func (a *API) BufferDestroy(b Buffer) error {
	return a.goError(C.tps_buffer_destroy(a.p, unsafe.Pointer(b)))
}

func (a *API) BufferIsDeleted(b Buffer) (bool, error) {
	var n C.int
	err := a.goError(C.tps_buffer_is_deleted(a.p, unsafe.Pointer(b), &n))
	return n != 0, err
}

func (a *API) BufferType(b Buffer) (int, error) {
	var n C.int
	err := a.goError(C.tps_buffer_type(a.p, unsafe.Pointer(b), &n))
	return int(n), err
}

func (a *API) BufferDims(b Buffer) ([]int64, error) {
	var l C.tps_list
	err := a.goError(C.tps_buffer_dims(a.p, unsafe.Pointer(b), &l))
	return append([]int64{}, unsafe.Slice((*int64)(l.p), l.n)...), err
}

// BufferSize returns the size on the device in bytes.
func (a *API) BufferSize(b Buffer) (int, error) {
	var n C.size_t
	err := a.goError(C.tps_buffer_size(a.p, unsafe.Pointer(b), &n))
	return int(n), err
}

func (a *API) BufferMemory(b Buffer) (Memory, error) {
	var m unsafe.Pointer
	err := a.goError(C.tps_buffer_memory(a.p, unsafe.Pointer(b), &m))
	return Memory(m), err
}

func (a *API) BufferToDevice(b Buffer, d Device) (Buffer, error) {
	var out unsafe.Pointer
	err := a.goError(C.tps_buffer_to_device(a.p, unsafe.Pointer(b), unsafe.Pointer(d), &out))
	return Buffer(out), err
}

func (a *API) BufferToMemory(b Buffer, m Memory) (Buffer, error) {
	var out unsafe.Pointer
	err := a.goError(C.tps_buffer_to_memory(a.p, unsafe.Pointer(b), unsafe.Pointer(m), &out))
	return Buffer(out), err
}

// BufferPoll returns an event that becomes ready when the contents are computed. The caller must
// destroy the event. If the contents are already computed, the event is nil, and the error is the
// error of the computation.
func (a *API) BufferPoll(b Buffer) (Event, error) {
	var e unsafe.Pointer
	err := a.goError(C.tps_buffer_poll(a.p, unsafe.Pointer(b), &e))
	return Event(e), err
}

// EventFinish blocks the thread until the event is ready, destroys the event and returns its error.
func (a *API) EventFinish(e Event) error {
	return a.goError(C.tps_event_finish(a.p, unsafe.Pointer(e)))
}

// BufferToHost copies the contents in row-major order to n bytes at dst. It blocks until the copy
// is complete.
func (a *API) BufferToHost(b Buffer, rank int, dst unsafe.Pointer, n int) error {
	return a.goError(C.tps_buffer_to_host(a.p, unsafe.Pointer(b), C.size_t(rank), dst, C.size_t(n)))
}

func (a *API) EventDestroy(e Event) { C.tps_event_destroy(a.p, unsafe.Pointer(e)) }

// EventNotify makes the plugin write a 16-byte message {slot, error} to fd when the event is ready,
// possibly before EventNotify returns. Both values are in host byte order; ReadError decodes the
// error. The caller can destroy the event immediately.
func (a *API) EventNotify(e Event, fd uintptr, slot uint64) error {
	return a.goError(C.tps_event_notify(a.p, unsafe.Pointer(e), C.int(fd), C.uint64_t(slot)))
}

// ReadError converts the error address of an EventNotify message to a Go error, and destroys the C
// error.
func (a *API) ReadError(address uint64) error {
	return a.goError(*(*unsafe.Pointer)(unsafe.Pointer(&address)))
}
