// Package goodput accounts for the wall time of a run over all of its lives: the fraction spent in
// steps that count, and the fractions spent in compilations, saves, waits, repeated steps, and time
// without a running process.
//
//	past := first.Append(second).Append(third)
//	shares := past.Shares()
//	fmt.Println(shares)             // goodput 91.2 % of 2h3m0s: compile 4.1 %, ...
//	fmt.Println(shares.Goodput())   // 0.912
//
// A [History] describes one life, or several consecutive lives joined by [History.Append]. Package
// watchdog stores it in the record of host 0, so a new life only needs the last record of the
// previous life.
//
// The shares add up to the wall time. Time of a life that belongs to no activity, for example
// between the start of a process and the start of its watchdog, is counted as start. Time between
// the last record of a life and the start of the next process is counted as down.
package goodput
