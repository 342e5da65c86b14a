// Command makedata generates small, learnable datasets in the formats of GoMLX's examples, so that the
// examples download nothing. It writes one folder per example into DIR. The data are always the same.
//
//	makedata DIR
package main
