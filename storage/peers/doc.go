// Package peers keeps objects on the hosts of a job themselves: in memory or on a local disk, which
// takes a small part of the time that a bucket takes. Each object lies on the host that put it and on
// its neighbor, so that the loss of one host loses none.
//
//	local, err := storage.Directory("/dev/shm/run") // or a folder on a local disk
//	store, err := peers.Open(ctx, local, peers.Options{Process: strat.Process(), Gather: strat.GatherBytes})
//	defer store.Close()
//
// All processes call Open together. Each serves its objects to the others over HTTP, at a port that
// the system chooses and to those who know the job's secret; the addresses and the secret go by
// Gather. What is put by one process is there for all: a listing is of all hosts, and an object that
// is not here is read from where it is.
//
// A store lives as long as its processes. When a job starts again, the objects that the surviving
// hosts' folders hold are there again, those of a lost host on its neighbor. Every host must answer:
// an operation on a store with a host that is gone fails within [Options].Patience, and names it.
//
// Objects outlast what the folder outlasts: a process, not a reboot, where it lies in memory.
package peers
