// Package events writes and reads TensorBoard event files: the measurements of a training run by
// step, which `tensorboard --logdir` shows.
//
//	w, err := events.Create("run/events", events.Options{})
//	err = w.Write(events.Event{Step: 10, Values: []events.Value{events.Scalar("loss", 0.5)}})
//	err = w.Close()
//
// An [Event] is a value: the scalars, texts, histograms and hyperparameters of one step.
// [Event.Append] encodes an event as a record of a file, and [Read] reads a file. A [Writer] writes
// one file in a directory, with a name that TensorBoard finds.
//
// # File format
//
// A file is a sequence of TFRecord records: a length, the data, and masked CRC-32C checksums of
// both. The data is a message tensorflow.Event. The first record contains the version of the format,
// the second the start of a run. A scalar is a float32, as in TensorBoard's own files.
//
// # Restarts
//
// A run that resumes from a checkpoint writes a new file into the same directory. Its second record
// contains the step at which it resumes ([Options].Restart). TensorBoard then drops the events of
// earlier files from this step on.
package events
