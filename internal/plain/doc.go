// Package plain makes text from other sources safe to print. It escapes control characters, escape
// codes of terminals, marks that change the direction of text, and bytes that are not UTF-8.
// Printable text is unchanged.
//
//	fmt.Fprintln(w, plain.EscapeLine(record.Name)) // prints "w-3\x1b[2J" as w-3\u001b[2J
package plain
