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
		return "{" + s.formatTiles() + "}"
	}
	return "{" + s.kind.String() + "}"
}

func (s OpSharding) formatTiles() string {
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

// lastTileReplicated reports whether the sharding can be written in HLO's short form
// last_tile_dim_replicate. Its only subgroup must be replicated.
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
	s := &scanner{subject: "HLO sharding", text: text}
	op := s.scanOpSharding(true)
	s.expectEnd()
	if s.err != nil {
		return OpSharding{}, s.err
	}
	return op, nil
}

func (s *scanner) scanOpSharding(tupleAllowed bool) OpSharding {
	var op OpSharding
	var err error
	s.expect("{")
	start := s.pos
	switch {
	case s.consume("replicated"):
	case s.consume("manual"):
		op = OpManual()
	case s.consume("unknown"):
		op = OpUnknown()
	case s.consume("unreduced"):
		op.kind = KindUnreduced
	case s.consume("maximal"):
		s.expect("device")
		s.expect("=")
		op, err = OpMaximal(s.scanInt())
	case s.consume("devices"):
		s.expect("=")
		op, err = s.scanTiles()
	case tupleAllowed:
		return s.scanTuple()
	default:
		s.setError("expected a sharding")
	}
	if err != nil && s.err == nil {
		s.pos = start
		s.setError("%s", strings.TrimPrefix(err.Error(), "sharding: "))
	}
	for _, word := range []string{"metadata", "shard_as", "shard_like"} {
		if s.consume(word) {
			s.setUnsupported("%s", word)
		}
	}
	s.expect("}")
	return op
}

func (s *scanner) scanTuple() OpSharding {
	op := OpSharding{kind: KindTuple}
	if s.consume("}") {
		return op
	}
	for s.err == nil {
		s.skipSpace()
		if s.pos < len(s.text) && s.text[s.pos] == '/' { // XLA writes comments such as /*index=5*/ in long tuples
			end := strings.Index(s.text[s.pos:], "*/")
			if end < 0 {
				s.setError("unclosed comment")
				break
			}
			s.pos += end + len("*/")
		}
		op.elements = append(op.elements, s.scanOpSharding(false))
		if s.consume("}") {
			break
		}
		s.expect(",")
	}
	return op
}

func (s *scanner) scanTiles() (OpSharding, error) {
	var dims, devices, reshape, perm []int
	s.scanList("[", "]", func() { dims = append(dims, s.scanInt()) })
	if s.consume("<=") {
		s.scanList("[", "]", func() { reshape = append(reshape, s.scanInt()) })
		if s.consume("T") {
			perm = []int{}
			s.scanList("(", ")", func() { perm = append(perm, s.scanInt()) })
		}
	} else {
		devices = append([]int{}, s.scanInt())
		for s.consume(",") {
			devices = append(devices, s.scanInt())
		}
	}
	var subgroups []Kind
	if s.consume("last_tile_dim_replicate") {
		subgroups = []Kind{KindReplicated}
	} else if s.consume("last_tile_dims") {
		s.expect("=")
		s.scanList("{", "}", func() { subgroups = append(subgroups, s.scanSubgroup()) })
	}
	switch {
	case s.err != nil:
		return OpSharding{}, nil
	case devices == nil:
		return OpIotaTile(dims, reshape, perm, subgroups...)
	}
	if len(dims) == 0 {
		return OpSharding{}, invalidError("tile", "list the tile dimensions in devices=[...]", "no tile dimensions")
	}
	return OpSubgroupTile(dims, devices, subgroups...)
}

func (s *scanner) scanSubgroup() Kind {
	for _, k := range []Kind{KindReplicated, KindManual, KindUnreduced} {
		if s.consume(k.String()) {
			return k
		}
	}
	s.setError("expected replicated, manual or unreduced")
	return 0
}
