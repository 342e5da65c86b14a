// Package stepfile saves compiled steps and loads them, so that a program that took minutes to
// compile runs in another process without being traced or compiled: compiled on a machine without
// TPUs, say, to run where they are.
//
//	compiled, err := step.Compiled(ctx, x, y)
//	...
//	err = stepfile.Save(ctx, file, compiled)
//
// and in the process that trains:
//
//	step, err := stepfile.LoadTrain(ctx, strat, file, store)
//	...
//	loss, err := step.Run(ctx, x, y)
//
// A file fits the same build of the plugin, devices of the same kind and the same topology and
// device assignment; an [*Error] says what does not fit. It contains the tensors that the step closes
// over. It names the step's variables, whose values are not part of it: they come from a checkpoint, or
// from the model.
//
// The file holds machine code, which runs: whoever can change the file can do all that the process
// that loads it can do. Its checksums find damage, not malice. Load what you wrote yourself and
// kept where nobody else can write, or give [Options].SHA256 the hash of the file that you wrote.
package stepfile
