package pjrt

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tpustrategy/tpustrategy/internal/protoint"
)

// FuzzCompileOptions checks that encode returns a CompileError or the correct message.
func FuzzCompileOptions(f *testing.F) {
	f.Add(1, 1, true, true, []byte{0}, "name", "value", int64(1), 0.5)
	f.Add(2, 2, true, false, []byte{0, 1, 2, 3}, "", "", int64(-1), 1e300)
	f.Add(-1, 1<<30, false, false, []byte{}, "\x00", "\xff", int64(0), 0.0)
	f.Fuzz(func(t *testing.T, replicas, partitions int, spmd, shardy bool, ids []byte, name, value string, n int64,
		x float64) {
		o := CompileOptions{Replicas: replicas, Partitions: partitions, SPMD: spmd, Shardy: shardy, DumpDir: value,
			Overrides: map[string]any{name: value, name + "n": n, name + "x": x, name + "b": spmd}}
		if p := partitions; p > 0 && p < 16 {
			for len(ids) > 0 {
				k := min(p, len(ids))
				var row []int
				for _, id := range ids[:k] {
					row = append(row, int(id))
				}
				o.DeviceAssignment, ids = append(o.DeviceAssignment, row), ids[k:]
			}
		}
		b, err := o.encode(256, func(id int) bool { return id < 256 })
		if err != nil {
			var ce *CompileError
			if !errors.As(err, &ce) {
				t.Fatalf("untyped: %v", err)
			}
			return
		}
		again, _ := o.encode(256, func(id int) bool { return id < 256 })
		if !bytes.Equal(b, again) {
			t.Fatal("encoding depends on map order")
		}
		build, err := lastField(b, 3)
		if err != nil {
			t.Fatal(err)
		}
		got := map[protowire.Number]uint64{}
		if err := forEachField(build, func(n protowire.Number, v uint64, m []byte) error {
			if m == nil {
				got[n] = v
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if int64(got[1]) != -1 || int(got[4]) != max(replicas, 1) || int(got[5]) != max(partitions, 1) ||
			got[6] != protowire.EncodeBool(spmd) || got[19] != protowire.EncodeBool(shardy) {
			t.Fatalf("options %+v became %v", o, got)
		}
	})
}

func FuzzReadAssignment(f *testing.F) {
	f.Add(encodeAssignment([][]int{{0, 1}, {2, 3}}))
	f.Add(protoint.AppendInt(nil, 1, 1<<40))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAssignment(b)
		if err != nil || len(a) == 0 {
			return
		}
		again, err := decodeAssignment(encodeAssignment(a))
		if err != nil || !reflect.DeepEqual(a, again) {
			t.Fatalf("%v became %v, %v", a, again, err)
		}
	})
}
