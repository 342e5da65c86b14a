// Package schedule defines learning rates that change with the number of training steps.
//
// A [Schedule] is a function of the number of applied steps, counted from 0. The functions of this
// package return schedules, which can be combined:
//
//	schedule.Cosine(3e-4, 3e-5, 10000)                      // from 3e-4 to 3e-5 in 10000 steps
//	schedule.WarmUp(500, schedule.Cosine(3e-4, 3e-5, 9500)) // from 0 to 3e-4 in 500 steps, then the cosine
//	schedule.Constant(0.1).Then(1000, schedule.Linear(0.1, 0, 500))
//
// [Schedule.At] computes a rate on the host in float64. [Schedule.Graph] builds the same function
// in a graph in float32. train.Options.LearningRate uses the graph, so that loops of steps and
// saved steps follow the schedule on the devices.
package schedule
