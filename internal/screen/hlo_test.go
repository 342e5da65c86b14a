package screen

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func message(n protowire.Number, value string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, n, protowire.BytesType), value))
}

func TestOptimizedHLOIsRefused(t *testing.T) {
	of := func(opcode string) string {
		return message(3, message(1, "main")+message(2, message(1, "fusion")+message(2, opcode)))
	}
	for module, bad := range map[string]bool{
		"":                             false,
		message(1, "name"):             false,
		of("add"):                      false,
		of("fusion"):                   true,
		message(7, ""):                 true,
		of("add") + message(7, "x"):    true,
		of("fusion")[:4]:               false, // cut short: the compiler says so
		"\x3a":                         false,
		message(3, message(7, "name")): false,
	} {
		if err := HLO([]byte(module)); (err != nil) != bad {
			t.Errorf("%q: %v", module, err)
		}
	}
}

func FuzzHLO(f *testing.F) {
	f.Add([]byte(message(3, message(2, message(2, "fusion")))))
	f.Add([]byte(message(7, "")))
	f.Fuzz(func(t *testing.T, module []byte) { _ = HLO(module) })
}
