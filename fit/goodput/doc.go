// Package goodput says where the wall time of a run went, over all of its lives: how much of it was
// steps that count, and how much compiling, saving, waiting, steps that were taken twice, and time
// in which no process ran.
//
//	past := first.Then(second).Then(third)
//	shares := past.Shares()
//	fmt.Println(shares)             // goodput 91.2 % of 2h3m0s: compile 4.1 %, ...
//	fmt.Println(shares.Goodput())   // 0.912
//
// A [History] is what a life tells of itself, and, by [History.Then], all lives before it as well:
// package watchdog keeps it in the record of host 0, so that no life needs
// more than the last record of the one before.
//
// The shares add up to the wall time. What no life accounts for, such as the time from a process's
// start to its watchdog's, is its start; what lies between the last record of a life and the next
// process's start is down.
package goodput
