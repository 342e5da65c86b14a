// Package goodput divides the wall time of a training run, over all of its attempts, into
// productive steps and overhead: compilations, saves, waits, repeated steps, and time without a
// running process. The goodput is the fraction spent in productive steps. A step is not productive
// if a later attempt repeats it because no checkpoint contains it.
//
//	past := history1.Append(history2).Append(history3)
//	breakdown := past.Breakdown()
//	fmt.Println(breakdown)             // goodput 91.2 % of 2h3m0s: compile 4.1 %, ...
//	fmt.Println(breakdown.Goodput())   // 0.912
//
// A [History] describes one attempt, or several consecutive attempts joined by [History.Append].
// Package watchdog stores it in the status record of host 0, so a new attempt only needs the last
// record of the previous attempt.
//
// All components add up to the wall time. Time of an attempt without a known activity, for example
// between the start of a process and the start of its watchdog, counts as start. Time between the
// last record of an attempt and the start of the next process counts as down.
package goodput
