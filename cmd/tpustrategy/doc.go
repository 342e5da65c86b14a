// Command tpustrategy describes TPU slices, assigns replicas to cores, and compiles training steps,
// with or without a TPU. It also installs plugins, checks machines and monitors training runs.
//
//	tpustrategy doctor
//	tpustrategy launch v5litepod-16 --on tpu-vm --dry-run
//	tpustrategy topology v5e:4x4
//	tpustrategy assign v5p:2x2x2 --shape 1,1,2,1 --replicas 4
//	tpustrategy compile --example digits --topology v5e:2x4 --logical 2
//	tpustrategy diff before.json after.json
//	tpustrategy curve RUN [RUN...]
//	tpustrategy watch run
//	tpustrategy accept
//
// Every command prints text, or one JSON value with --json. Exit codes: 0 success, 1 failure, 2
// invalid usage, 3 a plugin is missing or unusable, 4 the program does not fit into memory, 5 the
// compiler's process crashed, 6 accepted with findings or worse than the old report or the budget,
// 130 interrupted, 143 terminated.
package main
