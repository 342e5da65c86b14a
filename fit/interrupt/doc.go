// Package interrupt ends a run early without losing work. After a signal, a notice of maintenance
// or preemption, or a custom notice on any host, all hosts stop after the same step, so that they
// can save a common checkpoint and be restarted.
//
// # Use with package fit
//
//	ctx, stop := interrupt.Notify(context.Background(), interrupt.Options{})
//	defer stop()
//	_, err := fit.Run(ctx, step, data, fit.Options{Steps: 10000, Resume: true}, fit.Checkpoint("run/checkpoints", 500))
//	...
//	os.Exit(interrupt.ExitCodeFor(err))
//
// [Notify] cancels the context at the first notice. fit.Run then agrees with the other processes on
// the step, saves a checkpoint, and returns an error that carries [ExitCode]. A supervisor can
// restart the process, and the run resumes from that step. A second signal ends the process
// immediately.
//
// # The exit code
//
// [ExitCode] is 75, which is EX_TEMPFAIL in sysexits.h: the run was interrupted, and it can resume
// from its checkpoint or had not begun. [ExitCodeFor] returns the exit code of an error: 0 without
// an error, 75 for an interrupted run, 69 if another process does not respond, or another code.
// Supervisors that restart a process by its exit code:
//
//	systemd        Restart=on-failure restarts it, and RestartForceExitStatus=75 with any value of Restart
//	Kubernetes     a Job's podFailurePolicy with {action: Ignore, onExitCodes: {operator: In, values: [75]}}
//	a shell        until ./train; do [ $? = 75 ] || break; done
//
// # Use in a custom loop
//
// Without package fit, an [Agreement] determines the step after which all processes stop:
//
//	agreement := interrupt.NewAgreement(strat)
//	defer agreement.Close()
//	for n := start + 1; n <= steps; n++ {
//		loss, err := step.Run(context.WithoutCancel(ctx), batch...) // all processes run the step
//		...
//		if stop, err := agreement.AfterStep(ctx, n); err != nil || stop {
//			return errors.Join(err, save(context.WithoutCancel(ctx), n), agreement.StopError(n))
//		}
//	}
//
// # Cost
//
// A single process only checks its context. Several processes exchange rows of half a kilobyte
// each. The exchange is launched among the steps and read some steps later, so that no process
// waits for it. Exchanges happen about twice a second: the number of steps between them is derived
// from the measured step times, and is the same on all processes. All processes stop one to two
// intervals after the notice.
//
// # Deadlines
//
// A [Notice] has a deadline: 30 seconds after a preemption notice, 60 seconds after a maintenance
// notice, and [Options].Grace after SIGTERM. [TimeLeft] returns the remaining time.
package interrupt
