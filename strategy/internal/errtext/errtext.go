// Package errtext writes the text of the strategy packages' errors, so that all read
// alike: what was done, what is wrong, the cause, and what to do instead.
package errtext

// Of returns "what: reason: cause; hint". A cause that is nil and an empty hint are
// left out, with what stands before them.
func Of(what, reason string, cause error, hint string) string {
	text := what + ": " + reason
	if cause != nil {
		text += ": " + cause.Error()
	}
	if hint != "" {
		text += "; " + hint
	}
	return text
}
