// Package events writes and reads TensorBoard's event files: what a training run measured, by step,
// for `tensorboard --logdir` to show.
//
//	w, err := events.Create("run/events", events.Options{})
//	err = w.Write(events.Event{Step: 10, Values: []events.Value{events.Scalar("loss", 0.5)}})
//	err = w.Close()
//
// An [Event] is a value: scalars, texts, histograms and hyperparameters of one step. [Event.Append] writes one as a
// record of the file's form, and [Read] reads a file. A [Writer] keeps a file in a directory, under
// the name that TensorBoard looks for.
//
// # The form of a file
//
// A file is a sequence of TFRecord records: a length, the data, and masked CRC-32C checksums of
// both. The data is a message tensorflow.Event. The first record names the version of the form, the
// second says that a run starts. A scalar is a float32, as in TensorBoard's own files.
//
// # A run that is restarted
//
// A run that goes on from a checkpoint writes a new file into the same directory. Its second record
// says at which step it starts ([Options].Restart): TensorBoard then drops what earlier files
// have of that step and later ones.
package events
