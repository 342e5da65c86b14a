// Package peers stores objects on the hosts of a job, in memory or on a local disk, which is much
// faster than a bucket. Each object is stored on the host that put it and on the next host, so the
// loss of one host loses no objects.
//
//	local, err := storage.Directory("/dev/shm/run") // or a folder on a local disk
//	store, err := peers.Open(ctx, local, peers.Options{Process: strat.Process(), Gather: strat.GatherBytes})
//	defer store.Close()
//
// All processes must call [Open] together. Each process serves its objects to the others over HTTP,
// on a port that the system chooses. Requests must contain the job's secret. The processes exchange
// the addresses and the secret with [Options].Gather. Objects are visible to all processes: List
// lists the objects of all hosts, and an object that is not on this host is read from another host.
//
// After a job restarts, the objects in the folders of the surviving hosts are available again,
// including the copies of a lost host's objects on the next host. Put and Remove need all hosts: if
// a host is unreachable, the operation fails within [Options].Timeout and the error names the
// host.
//
// The objects are as durable as the folder: objects in memory survive the process, but not a
// reboot.
package peers
