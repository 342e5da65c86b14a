// Package command contains the exit codes and the signal handling of the module's commands.
//
// The main function of a command calls [Main] with the function that does the work:
//
//	func main() { os.Exit(command.Main(run)) }
//
// The first SIGINT or SIGTERM cancels the context of the work, with a *[Signal] as the cause. Main
// waits two seconds for the work to return and then returns itself, because a compiler ignores its
// context. Work that first writes a checkpoint calls [Hold] to make Main wait. The second signal
// kills the process.
package command
