// Package plain makes text of elsewhere safe to show: what a terminal would act on (escape codes,
// other controls, marks that turn the direction of writing) and bytes that are not UTF-8 are shown
// as escapes. What people read stays as it is.
//
//	fmt.Fprintln(w, plain.Line(record.Name)) // "w-3\x1b[2J" is shown as w-3\u001b[2J
package plain
