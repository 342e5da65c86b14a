// Package stepfile saves compiled steps and loads them in another process without tracing or
// compilation. For example, a step can be compiled on a machine without TPUs, which may take
// minutes, and run on a machine with TPUs.
//
//	compiled, err := step.Compiled(ctx, x, y)
//	...
//	err = stepfile.Save(ctx, file, compiled)
//
// In the process that trains:
//
//	step, err := stepfile.LoadTrain(ctx, strat, file, store)
//	...
//	loss, err := step.Run(ctx, x, y)
//
// A file requires the same build of the plugin, devices of the same kind, and the same topology and
// device assignment. Otherwise Load returns an [*Error] with the difference. The file contains the
// tensors that the step closes over. It contains the names of the step's variables, but not their
// values. Restore the values from a checkpoint or initialize them with the model.
//
// The file contains machine code that is executed: whoever can change the file can do everything
// that the loading process can do. Its checksums detect damage, not malice. Load only files that
// you wrote yourself and stored where nobody else can write, or set [Options].SHA256 to the hash of
// the file that you wrote.
package stepfile
