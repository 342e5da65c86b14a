package sharding

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// String returns the sharding as HLO text, such as {replicated}, {maximal device=0},
// {devices=[2,1]0,1}, {devices=[2,2]<=[4]} or {devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}.
func (s OpSharding) String() string {
	switch s.kind {
	case KindMaximal:
		return "{maximal device=" + strconv.Itoa(s.device) + "}"
	case KindTuple:
		return "{" + joinText(", ", s.elements) + "}"
	case KindTiled:
		return "{" + s.tileText() + "}"
	}
	return "{" + s.kind.String() + "}"
}

func (s OpSharding) tileText() string {
	text := "devices=[" + joinText(",", s.tiles.dims) + "]"
	if s.tiles.reshape == nil {
		text += joinText(",", s.tiles.devices)
	} else {
		text += "<=[" + joinText(",", s.tiles.reshape) + "]"
		if !slices.IsSorted(s.tiles.perm) {
			text += "T(" + joinText(",", s.tiles.perm) + ")"
		}
	}
	switch {
	case s.lastTileReplicated():
		text += " last_tile_dim_replicate"
	case len(s.subgroups) > 0:
		text += " last_tile_dims={" + joinText(", ", s.subgroups) + "}"
	}
	return text
}

// lastTileReplicated reports whether the only subgroup is replicated, so that the short form
// last_tile_dim_replicate applies.
func (s OpSharding) lastTileReplicated() bool {
	return len(s.subgroups) == 1 && s.subgroups[0] == KindReplicated
}

func joinText[T any](separator string, values []T) string {
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = fmt.Sprint(v)
	}
	return strings.Join(parts, separator)
}

// ParseOpSharding parses HLO text in the format of [OpSharding.String]. The error for malformed
// text matches [ErrSyntax]. The error for metadata and shard groups, which are not supported, also
// matches [errors.ErrUnsupported].
func ParseOpSharding(text string) (OpSharding, error) {
	s := &scanner{form: "HLO sharding", text: text}
	op := s.opSharding(true)
	s.end()
	if s.err != nil {
		return OpSharding{}, s.err
	}
	return op, nil
}

func (s *scanner) opSharding(tupleAllowed bool) OpSharding {
	var op OpSharding
	var err error
	s.expect("{")
	start := s.pos
	switch {
	case s.accept("replicated"):
	case s.accept("manual"):
		op = OpManual()
	case s.accept("unknown"):
		op = OpUnknown()
	case s.accept("unreduced"):
		op.kind = KindUnreduced
	case s.accept("maximal"):
		s.expect("device")
		s.expect("=")
		op, err = OpMaximal(s.integer())
	case s.accept("devices"):
		s.expect("=")
		op, err = s.tileSharding()
	case tupleAllowed:
		return s.tupleSharding()
	default:
		s.fail("expected a sharding")
	}
	if err != nil && s.err == nil {
		s.pos = start
		s.fail("%s", strings.TrimPrefix(err.Error(), "sharding: "))
	}
	for _, word := range []string{"metadata", "shard_as", "shard_like"} {
		if s.accept(word) {
			s.unsupported("%s", word)
		}
	}
	s.expect("}")
	return op
}

// tupleSharding reads the elements and the closing brace of a tuple.
func (s *scanner) tupleSharding() OpSharding {
	op := OpSharding{kind: KindTuple}
	if s.accept("}") {
		return op
	}
	for s.err == nil {
		s.skipSpace()
		if s.pos < len(s.text) && s.text[s.pos] == '/' { // XLA writes comments such as /*index=5*/ in long tuples
			end := strings.Index(s.text[s.pos:], "*/")
			if end < 0 {
				s.fail("unclosed comment")
				break
			}
			s.pos += end + len("*/")
		}
		op.elements = append(op.elements, s.opSharding(false))
		if s.accept("}") {
			break
		}
		s.expect(",")
	}
	return op
}

func (s *scanner) tileSharding() (OpSharding, error) {
	var dims, devices, reshape, perm []int
	s.list("[", "]", func() { dims = append(dims, s.integer()) })
	if s.accept("<=") {
		s.list("[", "]", func() { reshape = append(reshape, s.integer()) })
		if s.accept("T") {
			perm = []int{}
			s.list("(", ")", func() { perm = append(perm, s.integer()) })
		}
	} else {
		devices = append([]int{}, s.integer())
		for s.accept(",") {
			devices = append(devices, s.integer())
		}
	}
	var subgroups []Kind
	if s.accept("last_tile_dim_replicate") {
		subgroups = []Kind{KindReplicated}
	} else if s.accept("last_tile_dims") {
		s.expect("=")
		s.list("{", "}", func() { subgroups = append(subgroups, s.subgroup()) })
	}
	switch {
	case s.err != nil:
		return OpSharding{}, nil
	case devices == nil:
		return OpIotaTile(dims, reshape, perm, subgroups...)
	}
	if len(dims) == 0 {
		return OpSharding{}, invalid("tile", "list the tile dimensions in devices=[...]", "no tile dimensions")
	}
	return OpSubgroupTile(dims, devices, subgroups...)
}

func (s *scanner) subgroup() Kind {
	for _, k := range []Kind{KindReplicated, KindManual, KindUnreduced} {
		if s.accept(k.String()) {
			return k
		}
	}
	s.fail("expected replicated, manual or unreduced")
	return 0
}
