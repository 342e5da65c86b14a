// Command makedata writes small data sets of made-up but learnable content, in the formats that
// GoMLX's examples read, where they look for them: so nothing is downloaded.
//
//	makedata DIR
//
// writes a folder for each example into DIR. Every call writes the same data.
package main
