// Command gpt is a small language model as a newcomer writes it who has only read the
// documentation. It has one attention layer and reads the bytes of a text.
package main
