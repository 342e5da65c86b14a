// Command earlystop trains the linear model of GoMLX's MNIST example until its loss on held-out
// images has not fallen for a while. GoMLX's loop has no early stop of its own: a hook that returns
// an error ends the loop, and the best checkpoint is read again.
//
//	earlystop DATA CHECKPOINT
package main
