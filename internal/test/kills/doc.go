// Package kills holds the tests that kill training runs for real.
//
// Hosts are operating-system processes
// ([github.com/tpustrategy/tpustrategy/internal/test/prochost]) that train a small model on a few
// numbered examples. A supervisor starts them, harms one or all of them at a moment that chance
// picks, waits until the others have noticed and ended, and starts them again: as another number of
// hosts, and where the run says so on another number of replicas and logical devices. When the run is
// through, its losses, its examples and its last checkpoint are held against those of a run that
// nobody disturbed. The moments are also aimed at: in starts, in saves, in restores and in agreements.
// Whoever is left ends in seconds, with a code by which a supervisor starts all of them again.
//
// `make test` harms a few runs, `make test-kills` as many as 500 lives.
package kills
