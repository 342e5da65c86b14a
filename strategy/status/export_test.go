package status

// See returns a look at records that were read at a time.
var See = (*View).look
