package region

// Gate is a [Target] that asks before a graph gets a parameter. A region whose arguments are found
// while it is traced, such as a loop with stacked variables, refuses the parameters that should
// have been arguments, and is traced again with them.
type Gate interface {
	Target
	// Ask has ask be asked for each parameter that is added to the graph until done is called. An
	// error refuses the parameter. Those who ask nest; the last is asked first.
	Ask(ask func(name string) error) (done func())
}
