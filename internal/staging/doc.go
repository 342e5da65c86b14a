// Package staging lends host memory to what is on its way to devices, and knows how much of it
// there is at a time. The memory is taken from the system and given back to it, so that the
// process's size follows what is on the way.
package staging
