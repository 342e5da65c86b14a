// Package profile records profiles of a training run for XProf: what the devices did, as the plugin
// tells, beside what the host did, step by step.
//
// A run of package fit takes a hook, which records the steps from 100 to 110:
//
//	fit.Profile(profile.Options{Place: "run/profile", From: 100, To: 110})
//
// and `xprof --logdir run/profile` shows it. A run that is under way is asked for one by a [Trigger]:
// by a signal, or over HTTP:
//
//	trigger := new(profile.Trigger)
//	defer trigger.Notify(syscall.SIGUSR2)()
//	http.Handle("POST /profile", trigger) // curl -X POST 'localhost:6060/profile?steps=5'
//	fit.Profile(profile.Options{Place: "run/profile", Trigger: trigger})
//
// A loop of one's own calls a [Recorder], which the hook does, too. The CPU plugin records nothing: the
// file then has the host alone, and [Recorder.Devices] says why.
package profile
