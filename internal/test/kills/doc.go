// Package kills contains tests that kill and restart training runs.
//
// The hosts are operating-system processes
// ([github.com/tpustrategy/tpustrategy/internal/test/prochost]). They train a small model on a few
// numbered examples. A life is one start of all hosts until their exit. In each life, a supervisor
// starts the hosts, injects a fault into one or all of them at a random moment, and waits until all
// hosts have exited. The next life may have another number of hosts and, in some runs, another number
// of replicas and logical devices. Some faults are injected during a start, a save, a restore or an
// agreement between hosts. The remaining hosts must exit in seconds, with an exit code that makes a
// supervisor restart all hosts. A completed run must have the same losses, examples and last
// checkpoint as an undisturbed run.
//
// `make test` kills a few lives, `make test-kills` up to 500.
package kills
