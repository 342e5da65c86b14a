package sharding

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/protoint"
)

// Field numbers of xla.OpSharding.
const (
	opFieldType          = 1
	opFieldTileDims      = 3
	opFieldDevices       = 4
	opFieldTuple         = 5
	opFieldReplicateLast = 6
	opFieldLastTileDims  = 8
	opFieldIotaReshape   = 9
	opFieldIotaPerm      = 10
	opFieldIsShardGroup  = 11
)

// MarshalProto returns the sharding as a serialized xla.OpSharding, as TensorFlow writes it. A
// replicated sharding is the empty message. Devices in the iota form stay in the iota form; use
// [OpSharding.Explicit] first to list the devices.
func (s OpSharding) MarshalProto() []byte {
	if s.kind == KindReplicated {
		return nil
	}
	b := appendVarint(nil, opFieldType, int(s.kind))
	switch s.kind {
	case KindMaximal:
		b = appendPacked(b, opFieldTileDims, []int{1})
		b = appendPacked(b, opFieldDevices, []int{s.device})
	case KindTuple:
		for _, e := range s.elements {
			b = protowire.AppendTag(b, opFieldTuple, protowire.BytesType)
			b = protowire.AppendBytes(b, e.MarshalProto())
		}
	case KindTiled:
		b = appendPacked(b, opFieldTileDims, s.tiles.dims)
		b = appendPacked(b, opFieldDevices, s.tiles.devices)
		if s.lastTileReplicated() {
			b = appendVarint(b, opFieldReplicateLast, 1)
		} else {
			kinds := make([]int, len(s.subgroups))
			for i, k := range s.subgroups {
				kinds[i] = int(k)
			}
			b = appendPacked(b, opFieldLastTileDims, kinds)
		}
		b = appendPacked(b, opFieldIotaReshape, s.tiles.reshape)
		b = appendPacked(b, opFieldIotaPerm, s.tiles.perm)
	}
	return b
}

// Explicit returns the same sharding with its devices listed one by one, as TensorFlow writes them.
func (s OpSharding) Explicit() OpSharding {
	if s.kind == KindTiled {
		s.tiles = tiles{dims: s.tiles.dims, devices: s.tiles.expand()}
	}
	return s
}

func appendVarint(b []byte, field protowire.Number, v int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v))
}

func appendPacked(b []byte, field protowire.Number, values []int) []byte {
	if len(values) == 0 {
		return b
	}
	var packed []byte
	for _, v := range values {
		packed = protowire.AppendVarint(packed, uint64(v))
	}
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), packed)
}

// badProto is the error of bytes that are no xla.OpSharding.
func badProto(where string, err error) error {
	return &errkind.Fault{Op: "sharding: proto", Subject: where, Err: err,
		Hint: "give the bytes of a serialized xla.OpSharding", Class: errkind.ValueError}
}

// opWire is the content of a message, unchecked.
type opWire struct {
	kind, replicateLast, shardGroup int
	dims, devices, last             []int
	reshape, perm                   []int
	elements                        [][]byte
}

// ParseOpShardingProto reads a serialized xla.OpSharding, in the forms of TensorFlow and of XLA. An
// empty message is replicated; the caller decides whether a missing annotation means the same. The
// function skips metadata and unknown fields. The error of a shard group matches
// [errors.ErrUnsupported].
func ParseOpShardingProto(wire []byte) (OpSharding, error) { return parseOp(wire, true) }

func parseOp(wire []byte, tupleAllowed bool) (OpSharding, error) {
	var w opWire
	for rest := wire; len(rest) > 0; {
		field, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return OpSharding{}, badProto(fmt.Sprintf("at byte %d", len(wire)-len(rest)), protowire.ParseError(n))
		}
		rest = rest[n:]
		n, err := w.field(field, kind, rest)
		if err != nil {
			return OpSharding{}, badProto(fmt.Sprintf("field %d", field), err)
		}
		rest = rest[n:]
	}
	if w.shardGroup != 0 {
		return OpSharding{}, &errkind.Fault{Op: "sharding: proto", Reason: "it has a shard group", Hint: "write the sharding of each op",
			Class: errkind.NotImplementedError, Match: errors.ErrUnsupported}
	}
	return w.value(tupleAllowed)
}

func (w *opWire) field(field protowire.Number, kind protowire.Type, b []byte) (int, error) {
	switch field {
	case opFieldType:
		return protoint.Int(b, kind, &w.kind)
	case opFieldReplicateLast:
		return protoint.Int(b, kind, &w.replicateLast)
	case opFieldIsShardGroup:
		return protoint.Int(b, kind, &w.shardGroup)
	case opFieldTileDims:
		return protoint.Ints(b, kind, &w.dims)
	case opFieldDevices:
		return protoint.Ints(b, kind, &w.devices)
	case opFieldLastTileDims:
		return protoint.Ints(b, kind, &w.last)
	case opFieldIotaReshape:
		return protoint.Ints(b, kind, &w.reshape)
	case opFieldIotaPerm:
		return protoint.Ints(b, kind, &w.perm)
	case opFieldTuple:
		if kind != protowire.BytesType {
			return 0, errkind.New(errkind.ValueError, fmt.Sprintf("wire type %d instead of a message", kind))
		}
		element, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		w.elements = append(w.elements, element)
		return n, nil
	}
	n := protowire.ConsumeFieldValue(field, kind, b)
	if n < 0 {
		return 0, protowire.ParseError(n)
	}
	return n, nil
}

func (w *opWire) value(tupleAllowed bool) (OpSharding, error) {
	switch kind := Kind(w.kind); kind {
	case KindReplicated, KindManual, KindUnknown, KindUnreduced:
		return OpSharding{kind: kind}, nil
	case KindMaximal:
		if len(w.devices) != 1 {
			return OpSharding{}, wrong("proto", "give it one", "maximal with %d devices", len(w.devices))
		}
		return OpMaximal(w.devices[0])
	case KindTuple:
		if !tupleAllowed {
			return OpSharding{}, wrong("proto", "flatten it", "a tuple inside a tuple")
		}
		op := OpSharding{kind: KindTuple}
		for i, element := range w.elements {
			e, err := parseOp(element, false)
			if err != nil {
				return OpSharding{}, &errkind.Fault{Op: "sharding: proto", Subject: fmt.Sprintf("element %d", i), Err: err}
			}
			op.elements = append(op.elements, e)
		}
		return op, nil
	case KindTiled:
		return w.tiled()
	}
	return OpSharding{}, wrong("proto", "use a type from REPLICATED (0) to UNREDUCED (6)", "unknown type %d", w.kind)
}

func (w *opWire) tiled() (OpSharding, error) {
	var subgroups []Kind
	for _, k := range w.last {
		subgroups = append(subgroups, Kind(k))
	}
	if w.replicateLast != 0 {
		if len(subgroups) > 0 {
			return OpSharding{}, wrong("proto", "give one", "both replicate_on_last_tile_dim and last_tile_dims")
		}
		subgroups = []Kind{KindReplicated}
	}
	if len(w.reshape) > 0 {
		if len(w.devices) > 0 {
			return OpSharding{}, wrong("proto", "give one", "both listed and iota devices")
		}
		return OpIotaTile(w.dims, w.reshape, w.perm, subgroups...)
	}
	if len(w.devices) == 0 {
		return OpSharding{}, wrong("proto", "list them", "tiles without devices")
	}
	return OpSubgroupTile(w.dims, w.devices, subgroups...)
}
