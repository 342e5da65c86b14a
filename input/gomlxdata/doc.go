// Package gomlxdata converts between the datasets and tensors of GoMLX and of package input.
//
// [FromTrain] converts a GoMLX dataset, so that it can be distributed. [ToTrain] converts a dataset
// of package input for a GoMLX trainer. [FromTensor] and [ToTensor] copy single tensors.
//
// Package input itself does not depend on GoMLX's tensors. This package needs no cgo.
package gomlxdata
