// Package xspace writes profiles for XProf and TensorBoard's profile page: what a host did, step by
// step, beside what its plugin recorded on the devices.
//
//	data, err := xspace.Profile{Begin: begin, End: end, Host: "host-0", Lines: lines, Devices: recorded}.Encode()
//	err = os.WriteFile(filepath.Join("run/profile", xspace.Path("steps_100-110", "host-0")), data, 0o644)
//
// and then `xprof --logdir run/profile`, or `tensorboard --logdir run/profile` with its profile plugin.
//
// A profile is a message tensorflow.profiler.XSpace (tsl/profiler/protobuf/xplane.proto): planes, one
// a device and one for the host, with lines of events. Times within a file count from its begin, as
// those tools expect; a plugin records them since 1970, and they are moved.
package xspace
