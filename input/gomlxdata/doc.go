// Package gomlxdata joins GoMLX's datasets and tensors to package input, in both directions.
//
// [FromTrain] makes a GoMLX dataset distributable; [ToTrain] lets a GoMLX trainer read a dataset of
// package input. [FromTensor] and [ToTensor] convert single tensors, by copying.
//
// Package input itself stays free of GoMLX's tensors. Like them, this package needs no cgo.
package gomlxdata
