// Package loop runs the layers of a model in a loop of the program, instead of one after another in
// its text: the text of 48 layers is that of 2, and so is the time to compile it.
package loop
