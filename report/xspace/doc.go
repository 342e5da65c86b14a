// Package xspace writes profiles for XProf and TensorBoard's profile page: the activities of a host
// by step, with the recording of its plugin on the devices.
//
//	data, err := xspace.Profile{Begin: begin, End: end, Host: "host-0", Lines: lines, Devices: recorded}.Encode()
//	err = os.WriteFile(filepath.Join("run/profile", xspace.Path("steps_100-110", "host-0")), data, 0o644)
//
// Show the profile with `xprof --logdir run/profile`, or with `tensorboard --logdir run/profile` and
// its profile plugin.
//
// A profile is a message tensorflow.profiler.XSpace (tsl/profiler/protobuf/xplane.proto): planes, one
// per device and one for the host, with lines of events. The tools expect times relative to the start
// of the recording. A plugin records times since 1970, which Encode converts.
package xspace
