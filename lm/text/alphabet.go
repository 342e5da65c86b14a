package text

// Tokenizer files write the bytes of tokens as visible characters. A byte that is a visible
// character of Latin-1 is written as that character. The other bytes are written as the characters
// from U+0100, in order.
var (
	byteRune  [256]rune
	runeByte  = map[rune]byte{}
	byteOrder []byte // bytes in the order of their characters
)

func init() {
	visible := func(b int) bool { return b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae }
	var hidden []byte
	for b := range 256 {
		if visible(b) {
			byteRune[b] = rune(b)
			byteOrder = append(byteOrder, byte(b))
		} else {
			byteRune[b] = 0x100 + rune(len(hidden))
			hidden = append(hidden, byte(b))
		}
	}
	byteOrder = append(byteOrder, hidden...)
	for b, r := range byteRune {
		runeByte[r] = byte(b)
	}
}

// bytesToVisible converts bytes to visible characters.
func bytesToVisible(bytes string) string {
	out := make([]rune, 0, len(bytes))
	for i := range len(bytes) {
		out = append(out, byteRune[bytes[i]])
	}
	return string(out)
}

// visibleToBytes is the inverse of bytesToVisible. It returns false for other characters.
func visibleToBytes(text string) (string, bool) {
	out := make([]byte, 0, len(text))
	for _, r := range text {
		b, ok := runeByte[r]
		if !ok {
			return "", false
		}
		out = append(out, b)
	}
	return string(out), true
}
