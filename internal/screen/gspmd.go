package screen

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tpustrategy/tpustrategy/internal/protoint"
)

// GSPMD's shardings are strings in a program. Compilers read them with few checks and believe the
// numbers: a list of devices that is not as long as its tiles writes past the end of memory, and a
// tile count of 0 is divided by.

// maxTiles bounds the devices of a sharding or of a mesh, over the largest slice known.
const maxTiles = 1 << 20

// tiling is what a sharding with tiles says, in either of its forms.
type tiling struct {
	tiles    []int64 // per dimension, and then for subgroups
	devices  []int64 // nil if they are counted up, by reshape and perm
	reshape  []int64
	perm     []int64
	subgroup int // trailing tiles that are no dimensions
}

// check answers what is wrong, or "".
func (t *tiling) check() string {
	n := product(t.tiles)
	switch {
	case n == 0:
		return "its tiles are not numbers from 1, or more than a million together"
	case t.subgroup > len(t.tiles):
		return "it has fewer tiles than last_tile_dims"
	case t.devices == nil && product(t.reshape) != n:
		return "its tiles are not as many as its devices"
	case t.devices == nil:
		return permutation(t.perm, len(t.reshape))
	case int64(len(t.devices)) != n:
		return "its tiles are not as many as its devices"
	}
	seen := make(map[int64]bool, n)
	for _, d := range t.devices {
		if d < 0 || d >= n || seen[d] {
			return "its devices are not the numbers from 0, each once"
		}
		seen[d] = true
	}
	return ""
}

// product is 0 if a factor is below 1 or the product is beyond maxTiles.
func product(list []int64) int64 {
	n := int64(1)
	for _, v := range list {
		if v < 1 || v > maxTiles/n {
			return 0
		}
		n *= v
	}
	return n
}

func permutation(perm []int64, n int) string {
	if perm == nil {
		return ""
	}
	seen := map[int64]bool{}
	for _, p := range perm {
		if p < 0 || p >= int64(n) || seen[p] {
			return "its T(...) is no permutation"
		}
		seen[p] = true
	}
	if len(perm) != n {
		return "its T(...) is no permutation"
	}
	return ""
}

// checkSharding looks at the value of mhlo.sharding.
func checkSharding(s string) error {
	why := ""
	if strings.HasPrefix(s, "{") {
		why = shardingText(s, true)
	} else {
		why = shardingProto([]byte(s), true)
	}
	if why != "" {
		return codeError("the sharding %.200q: %s, which crashes the compiler: write one such as \"{devices=[2,1]<=[2]}\", or use sdy.sharding and sdy.sharding_group", s, why)
	}
	return nil
}

// tiled looks at a sharding of values of these types: compilers cut what has tiles by its
// dimensions, and end over a token or a tuple, which have none.
func (f *checker) tiled(a Attr, types ...string) error {
	if a.Key != "mhlo.sharding" {
		return nil
	}
	value := f.resolve(a.Value)
	if !strings.HasPrefix(value, `"`) {
		return nil
	}
	s, _ := scanString(value)
	if strings.HasPrefix(s, "{") {
		if !strings.HasPrefix(strings.TrimSpace(s[1:]), "devices") {
			return nil
		}
	} else if !isTiled([]byte(s)) {
		return nil
	}
	for _, t := range types {
		// It has no sizes that are not known, but for those with a bound.
		if dims, ok := tensorDims(t); !ok || slices.Contains(dims, -1) && !strings.Contains(t, ",") {
			return codeError("the sharding %.200q has tiles and is of a value of type %s, which crashes the compiler: give a tensor of static sizes, write \"{replicated}\", or {...} with a sharding for each element of a tuple", s, t)
		}
	}
	return nil
}

const (
	noSharding = "it is none"
	groupOf    = "it has shard_as or shard_like"
)

var (
	plainSharding = regexp.MustCompile(`^\{\s*(replicated|manual|unreduced|maximal device=[0-9]{1,7})` + shardingEnd)
	tiledSharding = regexp.MustCompile(`^\{\s*devices=\[([0-9, ]+)\](?:<=\[([0-9, ]+)\](?:T\(([0-9, ]+)\))?|([0-9, ]+))` +
		`( last_tile_dim_replicate| last_tile_dims=\{([a-z, ]*)\})?` + shardingEnd)
)

const shardingEnd = `(?: metadata=\{.*\})?\s*\}$`

// shardingText reads the form that compilers print.
func shardingText(s string, tuple bool) string {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "{mesh") || plainSharding.MatchString(s) {
		return "" // a mesh's names are the compiler's to check
	}
	if inside, ok := strings.CutPrefix(s, "{"); ok && tuple && (inside == "}" || strings.HasPrefix(strings.TrimSpace(inside), "{")) {
		inside, ok = strings.CutSuffix(inside, "}")
		if !ok {
			return noSharding
		}
		for _, element := range splitList(inside) {
			if why := shardingText(element, false); why != "" {
				return why
			}
		}
		return ""
	}
	m := tiledSharding.FindStringSubmatch(s)
	if m == nil {
		if strings.Contains(s, " shard_as ") || strings.Contains(s, " shard_like ") {
			return groupOf
		}
		return noSharding
	}
	t := tiling{tiles: numbers(m[1]), reshape: numbers(m[2]), perm: numbers(m[3]), devices: numbers(m[4])}
	switch {
	case m[5] == "":
	case m[6] == "" && strings.HasSuffix(m[5], "e"):
		t.subgroup = 1
	default:
		kinds := map[string]bool{}
		for _, kind := range splitList(m[6]) {
			if kinds[kind] || kind != "manual" && kind != "replicated" && kind != "unreduced" {
				return "its last_tile_dims are not manual, replicated or unreduced, each once"
			}
			kinds[kind] = true
			t.subgroup++
		}
	}
	return t.check()
}

// numbers reads a list; what is no number of 64 bits is -1.
func numbers(s string) (list []int64) {
	for _, word := range splitList(s) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			n = -1
		}
		list = append(list, n)
	}
	return list
}

// The types of an OpSharding that matter here: of the others only a tuple has more to it.
const (
	tiledType   = 3
	unknownType = 5
)

// shardingProto reads a serialized OpSharding: 1 the type, 3 the tiles, 4 the devices, 5 a tuple's
// elements, 6 and 8 the subgroups, 9 and 10 how devices are counted up, 11 that it is of a group.
func shardingProto(b []byte, tuple bool) (why string) {
	var t tiling
	kind, replicate := uint64(0), false
	for f, err := range protoint.Fields(b) {
		if err != nil {
			return noSharding
		}
		list := map[protowire.Number]*[]int64{3: &t.tiles, 4: &t.devices, 9: &t.reshape, 10: &t.perm}[f.Number]
		switch n := f.Number; {
		case list != nil:
			if *list, err = protoint.Numbers(*list, f); err != nil {
				return noSharding
			}
		case n == 1:
			kind = f.Value
		case n == 5 && !tuple:
			return "it has tuples in tuples"
		case n == 5:
			if why := shardingProto(f.Bytes, false); why != "" {
				return why
			}
		case n == 11 && f.Value != 0:
			return groupOf
		case n == 6:
			replicate = f.Value != 0
		case n == 8 && f.Bytes != nil:
			t.subgroup += len(f.Bytes)
		case n == 8:
			t.subgroup++
		}
	}
	switch kind {
	case tiledType:
	case unknownType:
		return noSharding
	default:
		return ""
	}
	if replicate {
		t.subgroup = max(t.subgroup, 1)
	}
	return t.check()
}

// isTiled tells whether a serialized OpSharding has tiles.
func isTiled(b []byte) bool {
	kind := uint64(0)
	for f := range protoint.Fields(b) {
		if f.Number == 1 {
			kind = f.Value
		}
	}
	return kind == tiledType
}

// shardingLooks finds what is a sharding by its looks among the strings of bytecode, which end with
// a NUL and do not say whose they are.
var shardingLooks = regexp.MustCompile(`(?:^|[^{])(\{+(?:devices=|maximal|replicated|manual|unknown|unreduced)[^\x00]*)`)

func checkShardingsIn(s string) error {
	if !strings.Contains(s, "{") {
		return nil
	}
	for _, m := range shardingLooks.FindAllStringSubmatch(s, -1) {
		if err := checkSharding(m[1]); err != nil {
			return err
		}
	}
	return nil
}
