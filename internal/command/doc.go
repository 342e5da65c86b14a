// Package command holds what the module's commands share: their exit codes, and how a signal ends
// them.
//
// The main function of a command calls [Main] with the function that does the work, and exits with
// the code that Main returns:
//
//	func main() { os.Exit(command.Main(run)) }
//
// The first SIGINT or SIGTERM ends the context of the work, with a *[Signal] as the cause. Main
// waits two seconds for the work to end and then returns, because a compiler in the process takes
// no notice of a context. Work that saves first asks by [Hold] to be waited for. The second signal
// ends the process.
package command
