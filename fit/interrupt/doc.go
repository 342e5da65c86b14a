// Package interrupt ends a run before its time without losing work: a signal, a notice of
// maintenance or pre-emption, or a notice of one's own on any host ends all hosts after the same
// step, so that they can save together and be started again.
//
// # A run of package fit
//
//	ctx, stop := interrupt.Notify(context.Background(), interrupt.Options{})
//	defer stop()
//	_, err := fit.Run(ctx, step, data, fit.Options{Steps: 10000, Resume: true}, fit.Checkpoint("run/checkpoints", 500))
//	...
//	os.Exit(interrupt.Code(err))
//
// [Notify] ends the context with the first notice. fit.Run then agrees with the other processes on
// the step, saves there, and returns an error that carries [ExitCode]. Whoever watches the process
// starts it again, and it goes on from that step. The second signal ends the process at once.
//
// # The exit code
//
// [ExitCode] is 75, which sysexits.h calls EX_TEMPFAIL: the run was interrupted and its checkpoint
// can be gone on from, or it had not begun. [Code] is the exit code of an error: 0, this one, 69 where
// another process does not answer, or another. What restarts a process by it:
//
//	systemd        Restart=on-failure restarts it, and RestartForceExitStatus=75 whatever Restart says
//	Kubernetes     a Job's podFailurePolicy with {action: Ignore, onExitCodes: {operator: In, values: [75]}}
//	a shell        until ./train; do [ $? = 75 ] || break; done
//
// # A loop of one's own
//
// Without package fit an [Agreement] says after which step all processes stop:
//
//	agreement := interrupt.NewAgreement(strat)
//	defer agreement.Close()
//	for n := start + 1; n <= steps; n++ {
//		loss, err := step.Run(context.WithoutCancel(ctx), batch...) // which the others take, too
//		...
//		if stop, err := agreement.After(ctx, n); err != nil || stop {
//			return errors.Join(err, save(context.WithoutCancel(ctx), n), agreement.Stopped(n))
//		}
//	}
//
// # What it costs
//
// A process alone looks at its context. Several exchange a row of half a kilobyte each, as a launch
// among the steps that is read some steps later, so that nobody waits for it. They do so about twice
// a second: the number of steps between is learned from the steps' own times, and is the same on
// all. All stop one to two such intervals after the notice.
//
// # How much time there is
//
// A [Notice] has a deadline: 30 seconds for pre-emption, 60 for maintenance, [Options].Grace for
// SIGTERM. [Left] is what is left of it.
package interrupt
