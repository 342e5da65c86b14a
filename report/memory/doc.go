// Package memory describes the memory of a step on one device, as far as it is known without the
// compiled program: the tensors of the step ([Tensors]), the compiler's error for a step that does
// not fit ([RefusalOf]), its largest temporary values, and changes that reduce its memory
// ([Step.Suggestions]). Package strategy uses it for the error of a step that does not fit, and
// package report for its reports.
package memory
