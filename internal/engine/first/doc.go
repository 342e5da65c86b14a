// Package first makes the first values of a store's variables.
//
// They are what the variables' initializers say, in the order in which the variables were made: each
// initializer that draws random numbers goes on from the state that the one before it left. Large
// variables are made on the devices, each device its own part, by a program for each kind of variable,
// and once in a process; small ones on the host, by GoMLX's own backend. Both draw the same bits, see
// [lowering.RandomPCG]. In the store a [Value] stands for what was made on devices, and says how.
package first
