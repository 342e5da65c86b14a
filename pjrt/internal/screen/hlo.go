package screen

import "google.golang.org/protobuf/encoding/protowire"

// HLO says what of a serialized HloModuleProto is known to crash compilers: one that a
// compiler has optimized. Field 3 is a computation, 7 the schedule; of a computation 2
// is an instruction, and of that 2 the opcode.
func HLO(module []byte) error {
	found := ""
	fields(module, func(n protowire.Number, m []byte) {
		switch n {
		case 3:
			fields(m, func(n protowire.Number, m []byte) {
				if n == 2 && isFusion(m) {
					found = "fusions"
				}
			})
		case 7:
			found = "a schedule"
		}
	})
	if found == "" {
		return nil
	}
	return codeError("it has %s, as a program has that a compiler optimized, and another optimization crashes on that: compile the program that it was made from, or use Executable.Serialize and Client.Load", found)
}

func isFusion(instruction []byte) (fusion bool) {
	fields(instruction, func(n protowire.Number, m []byte) { fusion = fusion || n == 2 && string(m) == "fusion" })
	return fusion
}

// fields calls f for the messages and strings of a message, up to what is malformed,
// which the compiler refuses.
func fields(m []byte, f func(n protowire.Number, m []byte)) {
	for len(m) > 0 {
		n, kind, size := protowire.ConsumeTag(m)
		if size < 0 {
			return
		}
		m = m[size:]
		if size = protowire.ConsumeFieldValue(n, kind, m); size < 0 {
			return
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(m)
			f(n, value)
		}
		m = m[size:]
	}
}
