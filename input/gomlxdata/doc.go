// Package gomlxdata joins GoMLX's datasets and tensors to package input, in both directions.
//
// [FromTrain] makes a GoMLX dataset distributable; [ToTrain] lets a GoMLX trainer read a dataset of package input.
// [FromTensor] and [ToTensor] convert single tensors, by copying.
//
// It is a package of its own so that package input stays free of GoMLX. Like GoMLX's tensors it needs no cgo.
package gomlxdata
