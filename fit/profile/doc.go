// Package profile records profiles of a training run for XProf: the activities of the devices, as
// the plugin reports them, and the activities of the host, step by step.
//
// In a run of package fit, a hook records a range of steps, for example steps 100 to 110:
//
//	fit.Profile(profile.Options{Dir: "run/profile", From: 100, To: 110})
//
// `xprof --logdir run/profile` shows the profile. A [Trigger] requests a recording of a running
// process by a signal or over HTTP:
//
//	trigger := new(profile.Trigger)
//	defer trigger.Notify(syscall.SIGUSR2)()
//	http.Handle("POST /profile", trigger) // curl -X POST 'localhost:6060/profile?steps=5'
//	fit.Profile(profile.Options{Dir: "run/profile", Trigger: trigger})
//
// A custom loop uses a [Recorder], as the hook does. The CPU plugin has no profiler: the profile
// then only contains the host, and [Recorder.DeviceError] returns the reason.
package profile
