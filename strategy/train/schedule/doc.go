// Package schedule says how a learning rate changes with the steps of a training.
//
// A [Schedule] is a value: a function of the number of steps that were taken, from 0. It is made of
// the ones here, one after another:
//
//	schedule.Cosine(3e-4, 3e-5, 10000)                      // from 3e-4 to 3e-5 in 10000 steps
//	schedule.WarmUp(500, schedule.Cosine(3e-4, 3e-5, 9500)) // up from 0 in 500 steps, then that
//	schedule.Constant(0.1).Then(1000, schedule.Linear(0.1, 0, 500))
//
// [Schedule.At] computes a rate on the host, in float64. [Schedule.Graph] builds the same in a
// step's graph, in float32, from the step's number: train.Options.LearningRate uses it, so that
// loops of steps and saved steps follow the schedule on the devices.
package schedule
