package sharding

import (
	"errors"
	"fmt"

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

// MarshalProto returns the sharding as a serialized xla.OpSharding message. A replicated sharding
// is the empty message. A computed device list (see [OpIotaTile]) is not expanded; call
// [OpSharding.WithDeviceList] first to list the devices individually.
func (s OpSharding) MarshalProto() []byte {
	if s.kind == KindReplicated {
		return nil
	}
	b := protoint.AppendInt(nil, opFieldType, int64(s.kind))
	switch s.kind {
	case KindMaximal:
		b = protoint.AppendInts(b, opFieldTileDims, []int{1})
		b = protoint.AppendInts(b, opFieldDevices, []int{s.device})
	case KindTuple:
		for _, e := range s.elements {
			b = protoint.AppendBytes(b, opFieldTuple, e.MarshalProto())
		}
	case KindTiled:
		b = protoint.AppendInts(b, opFieldTileDims, s.tiles.dims)
		b = protoint.AppendInts(b, opFieldDevices, s.tiles.devices)
		if s.lastTileReplicated() {
			b = protoint.AppendInt(b, opFieldReplicateLast, 1)
		} else {
			kinds := make([]int, len(s.subgroups))
			for i, k := range s.subgroups {
				kinds[i] = int(k)
			}
			b = protoint.AppendInts(b, opFieldLastTileDims, kinds)
		}
		b = protoint.AppendInts(b, opFieldIotaReshape, s.tiles.reshape)
		b = protoint.AppendInts(b, opFieldIotaPerm, s.tiles.perm)
	}
	return b
}

// WithDeviceList returns the same sharding with each device listed individually, as TensorFlow
// writes it.
func (s OpSharding) WithDeviceList() OpSharding {
	if s.kind == KindTiled {
		s.tiles = deviceTiles{dims: s.tiles.dims, devices: s.tiles.deviceList()}
	}
	return s
}

func protoError(where string, err error) error {
	return &errkind.Fault{Op: "sharding: proto", Subject: where, Err: err,
		Hint: "pass the bytes of a serialized xla.OpSharding", Class: errkind.ValueError}
}

// opShardingFields contains the decoded fields of a message before validation.
type opShardingFields struct {
	kind, replicateLast, shardGroup int
	dims, devices, lastTileDims     []int
	reshape, perm                   []int
	elements                        [][]byte
}

// ParseOpShardingProto parses a serialized xla.OpSharding message. It accepts the messages of
// TensorFlow and of XLA, and ignores metadata and unknown fields. An empty message is a replicated
// sharding. Shard groups are not supported; their error matches [errors.ErrUnsupported].
func ParseOpShardingProto(wire []byte) (OpSharding, error) { return parseOpSharding(wire, true) }

func parseOpSharding(wire []byte, tupleAllowed bool) (OpSharding, error) {
	var w opShardingFields
	for f, err := range protoint.Fields(wire) {
		if err != nil {
			return OpSharding{}, protoError("", err)
		}
		if err := w.parseField(f); err != nil {
			return OpSharding{}, protoError(fmt.Sprintf("field %d", f.Number), err)
		}
	}
	if w.shardGroup != 0 {
		return OpSharding{}, &errkind.Fault{Op: "sharding: proto", Reason: "shard groups are not supported",
			Hint: "write the sharding of each op", Class: errkind.NotImplementedError, Match: errors.ErrUnsupported}
	}
	return w.toOpSharding(tupleAllowed)
}

func (w *opShardingFields) parseField(f protoint.Field) (err error) {
	switch f.Number {
	case opFieldType:
		w.kind, err = f.Int()
	case opFieldReplicateLast:
		w.replicateLast, err = f.Int()
	case opFieldIsShardGroup:
		w.shardGroup, err = f.Int()
	case opFieldTileDims:
		w.dims, err = f.AppendInts(w.dims)
	case opFieldDevices:
		w.devices, err = f.AppendInts(w.devices)
	case opFieldLastTileDims:
		w.lastTileDims, err = f.AppendInts(w.lastTileDims)
	case opFieldIotaReshape:
		w.reshape, err = f.AppendInts(w.reshape)
	case opFieldIotaPerm:
		w.perm, err = f.AppendInts(w.perm)
	case opFieldTuple:
		if f.Bytes == nil {
			return errkind.New(errkind.ValueError, "expected a message but found a varint")
		}
		w.elements = append(w.elements, f.Bytes)
	}
	return err
}

func (w *opShardingFields) toOpSharding(tupleAllowed bool) (OpSharding, error) {
	switch kind := Kind(w.kind); kind {
	case KindReplicated, KindManual, KindUnknown, KindUnreduced:
		return OpSharding{kind: kind}, nil
	case KindMaximal:
		if len(w.devices) != 1 {
			return OpSharding{}, invalidError("proto", "list exactly one device", "a maximal sharding has %d devices",
				len(w.devices))
		}
		return OpMaximal(w.devices[0])
	case KindTuple:
		if !tupleAllowed {
			return OpSharding{}, invalidError("proto", "flatten the tuple", "a tuple contains another tuple")
		}
		op := OpSharding{kind: KindTuple}
		for i, element := range w.elements {
			e, err := parseOpSharding(element, false)
			if err != nil {
				return OpSharding{}, &errkind.Fault{Op: "sharding: proto", Subject: fmt.Sprintf("element %d", i), Err: err}
			}
			op.elements = append(op.elements, e)
		}
		return op, nil
	case KindTiled:
		return w.toTiled()
	}
	return OpSharding{}, invalidError("proto", "use a type from REPLICATED (0) to UNREDUCED (6)", "unknown type %d",
		w.kind)
}

func (w *opShardingFields) toTiled() (OpSharding, error) {
	var subgroups []Kind
	for _, k := range w.lastTileDims {
		subgroups = append(subgroups, Kind(k))
	}
	if w.replicateLast != 0 {
		if len(subgroups) > 0 {
			return OpSharding{}, invalidError("proto", "set only one of these fields",
				"both replicate_on_last_tile_dim and last_tile_dims are set")
		}
		subgroups = []Kind{KindReplicated}
	}
	if len(w.reshape) > 0 {
		if len(w.devices) > 0 {
			return OpSharding{}, invalidError("proto", "use one form", "the message has both listed devices and iota devices")
		}
		return OpIotaTile(w.dims, w.reshape, w.perm, subgroups...)
	}
	if len(w.devices) == 0 {
		return OpSharding{}, invalidError("proto", "list the devices or set the iota fields", "the tiles have no devices")
	}
	return OpSubgroupTile(w.dims, w.devices, subgroups...)
}
