package screen

import "github.com/tpustrategy/tpustrategy/internal/protoint"

// HLO says what of a serialized HloModuleProto is known to crash compilers: one that a compiler has
// optimized. Field 3 is a computation, 7 the schedule; of a computation 2 is an instruction, and of
// that 2 the opcode.
func HLO(module []byte) error {
	found := ""
	for f := range protoint.Fields(module) { // what is malformed the compiler refuses
		switch {
		case f.Bytes == nil:
		case f.Number == 3 && hasFusion(f.Bytes):
			found = "fusions"
		case f.Number == 7:
			found = "a schedule"
		}
	}
	if found == "" {
		return nil
	}
	return codeError("it has %s, as a program has that a compiler optimized, and another optimization crashes on that: compile the program that it was made from, or use Executable.Serialize and Client.Load", found)
}

func hasFusion(computation []byte) bool {
	for instruction := range protoint.Fields(computation) {
		if instruction.Number != 2 {
			continue
		}
		for f := range protoint.Fields(instruction.Bytes) {
			if f.Number == 2 && string(f.Bytes) == "fusion" {
				return true
			}
		}
	}
	return false
}
