// Package status is what the hosts of a run say of themselves: one small record a host, in a folder
// or an object store, that says where the host is and what it waits for. Package
// strategy/watchdog writes the records, `tpustrategy watch` shows them, and [View.Judge] says which
// host the others wait for.
//
//	board, err := status.Open(ctx, "run")            // or gs://bucket/run
//	defer board.Close()
//	var view status.View
//	look, err := view.Look(ctx, board)               // and again a second later, to see who is alive
//	for _, line := range look.Text(0) {
//		fmt.Println(line)
//	}
//
// # The records
//
// Host 3 writes status/host-0003.json below the run's place, once a second at most. A record is
// JSON: the run, the host, a sequence number, the step, the rate, the loss, the last checkpoint,
// what the host does and for how long. In a folder nothing is brought to the disk by force, so that a
// save does not hold up the sign of life, and where the disk is full a record is written over the one
// before (storage.PutOptions.Volatile); a reader passes over a half that does not parse. In an object
// store it is one object.
//
// # Time
//
// No two clocks are compared to tell whether a host is alive: a [View] goes by the records'
// sequence numbers and the reader's own monotonic clock. A host whose record has not changed for
// some seconds is silent. What a record says of times, it says in seconds that have passed. The
// host's wall clock is in the record only so that a wrong clock can be named.
package status
