// Package goodput accounts for the wall time of a run over all of its attempts: the fraction spent
// in steps that count, and the fractions spent in compilations, saves, waits, repeated steps, and
// time without a running process.
//
//	past := history1.Append(history2).Append(history3)
//	breakdown := past.Breakdown()
//	fmt.Println(breakdown)             // goodput 91.2 % of 2h3m0s: compile 4.1 %, ...
//	fmt.Println(breakdown.Goodput())   // 0.912
//
// A [History] describes one attempt, or several consecutive attempts joined by [History.Append].
// Package watchdog stores it in the record of host 0, so a new attempt only needs the last record
// of the previous attempt.
//
// The shares add up to the wall time. Time of an attempt that belongs to no activity, for example
// between the start of a process and the start of its watchdog, is counted as start. Time between
// the last record of an attempt and the start of the next process is counted as down.
package goodput
