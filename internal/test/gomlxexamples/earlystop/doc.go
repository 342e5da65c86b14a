// Command earlystop trains the linear model of GoMLX's MNIST example with early stopping. GoMLX's loop
// does not support early stopping, so a hook stops the loop with an error when the loss on held-out
// images no longer decreases. The command then restores the best checkpoint. Usage:
//
//	earlystop DATA CHECKPOINT
package main
