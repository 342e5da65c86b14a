// Package plain makes untrusted text safe to print. It escapes control characters, terminal escape
// sequences, Unicode characters that change the text direction, and bytes that are not valid UTF-8.
// Printable text is unchanged.
//
//	fmt.Fprintln(w, plain.EscapeLine(record.Name)) // prints "w-3\x1b[2J" as w-3\u001b[2J
package plain
