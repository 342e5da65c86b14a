// Package command contains the exit codes and the signal handling of the module's commands.
//
// The main function of a command calls [Main] with the function that does the work:
//
//	func main() { os.Exit(command.Main(run)) }
//
// The first SIGINT or SIGTERM cancels the context, with a *[Signal] as the cause. Main then waits
// two seconds for the function to return, because a compilation ignores its context. A function
// that needs more time, for example to save a checkpoint, calls [Hold]. A second signal kills the
// process.
package command
