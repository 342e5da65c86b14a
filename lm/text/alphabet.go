package text

// Tokenizer files write the bytes of tokens as visible characters. A byte that is a visible
// character of Latin-1 is written as that character. The other bytes are written as the characters
// from U+0100, in order.
var (
	byteToRune [256]rune
	runeToByte = map[rune]byte{}
	byteOrder  []byte // bytes in the order of their characters
)

func init() {
	visible := func(b int) bool { return b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae }
	var hidden []byte
	for b := range 256 {
		if visible(b) {
			byteToRune[b] = rune(b)
			byteOrder = append(byteOrder, byte(b))
		} else {
			byteToRune[b] = 0x100 + rune(len(hidden))
			hidden = append(hidden, byte(b))
		}
	}
	byteOrder = append(byteOrder, hidden...)
	for b, r := range byteToRune {
		runeToByte[r] = byte(b)
	}
}

// bytesToVisible converts each byte to a visible character, as in tokenizer files.
func bytesToVisible(bytes string) string {
	out := make([]rune, 0, len(bytes))
	for i := range len(bytes) {
		out = append(out, byteToRune[bytes[i]])
	}
	return string(out)
}

// visibleToBytes is the inverse of bytesToVisible. It returns false for text with other characters.
func visibleToBytes(text string) (string, bool) {
	out := make([]byte, 0, len(text))
	for _, r := range text {
		b, ok := runeToByte[r]
		if !ok {
			return "", false
		}
		out = append(out, b)
	}
	return string(out), true
}
