// Package initialization computes the initial values of the variables of a store.
//
// It runs the variables' initializers in the order in which the variables were created. Each
// initializer that draws random numbers continues from the random number state that the previous
// one left. Values of large variables are computed on the devices, once in each process and each
// device its own shard, by one program for each kind of variable. Values of small variables are
// computed on the host by GoMLX's own backend. Both compute the same bits, see
// [lowering.RandomPCG]. In the store, a [Value] represents a value that was computed on the
// devices.
package initialization
