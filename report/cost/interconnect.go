package cost

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/report/hlo"
)

// idsOfASlice is the difference between the device ids of consecutive slices.
const idsOfASlice = 100_000

type position struct {
	chip  [3]int
	slice int
}

// position returns the chip coordinates and the slice of a partition, and whether they are known.
// libtpu numbers the devices of a slice by core, x, y and z, with the core fastest.
func (s *slice) position(devices []int, partition int) (p position, known bool) {
	id := partition
	if len(devices) > 0 {
		if partition < 0 || partition >= len(devices) {
			return p, false
		}
		id = devices[partition]
	}
	p.slice, id = id/idsOfASlice, id%idsOfASlice/s.perChip
	for d, n := range s.shape {
		p.chip[d], id = id%n, id/n
	}
	return p, id == 0
}

type span struct {
	extent int
	// links is the number of links that transfer the group's bytes in one direction. Adjacent
	// groups share links.
	links float64
	hops  int
	ring  bool
}

// maxLayouts bounds the number of cached groups, because a malformed program can have any number.
const maxLayouts = 64

type groupLayout struct {
	group []int
	known bool
	// spans are the extents along each axis of the chips in the first slice of the group if they are
	// a block, and otherwise one chain.
	spans []span
	// chips is the number of chips in the first slice, and slices the number of slices.
	chips, slices int
}

// layout returns the arrangement of a group's chips in the slice. The results are cached.
func (s *slice) layout(devices, group []int) groupLayout {
	for _, l := range s.layouts {
		if slices.Equal(l.group, group) {
			return l
		}
	}
	l := groupLayout{group: group, known: true}
	here := make([]bool, s.shape[0]*s.shape[1]*s.shape[2]) // the chips of the group in its first slice
	var along [3][]bool
	for d, n := range s.shape {
		along[d] = make([]bool, n)
	}
	var others []int
	for _, partition := range group {
		p, ok := s.position(devices, partition)
		if !ok {
			l = groupLayout{group: group}
			break
		}
		if !slices.Contains(others, p.slice) {
			others = append(others, p.slice)
		}
		chip := (p.chip[2]*s.shape[1]+p.chip[1])*s.shape[0] + p.chip[0]
		if p.slice != others[0] || here[chip] {
			continue
		}
		here[chip] = true
		l.chips++
		for d, at := range p.chip {
			along[d][at] = true
		}
	}
	if l.known {
		l.slices, l.spans = len(others), s.spans(along, l.chips)
	}
	if len(s.layouts) < maxLayouts {
		s.layouts = append(s.layouts, l)
	}
	return l
}

// spans returns the extent of a group's chips along each axis. along contains the coordinates of
// the chips for each axis. If the chips do not form a block, the result is a single chain.
func (s *slice) spans(along [3][]bool, chips int) (all []span) {
	blocks := 1
	for d, marked := range along {
		first := slices.Index(marked, true)
		n, stride := 0, 0
		for at, is := range marked {
			if is {
				if n++; n == 2 {
					stride = at - first
				}
			}
		}
		if blocks *= n; n == 1 {
			continue
		}
		x := span{extent: n, ring: s.wrap[d] && n*stride >= s.shape[d] && n > 2, links: 1 / float64(stride),
			hops: (n - 1) * stride}
		if x.ring {
			x.links, x.hops = 2*x.links, n/2*stride
		}
		all = append(all, x)
	}
	if blocks != chips {
		return []span{{extent: chips, links: 1, hops: chips - 1}}
	}
	return all
}

// collectiveSeconds returns the time of a collective of the given kind when no other collective
// uses the same links, and whether the time is known. devices are the devices of the program's
// partitions.
func (s *slice) collectiveSeconds(devices []int, i *hlo.Instruction, kind string) (seconds float64, known bool) {
	var bytes float64
	for _, o := range i.Operands {
		if o != nil {
			bytes += float64(o.Bytes)
		}
	}
	if kind == "collective-permute" {
		return s.permutationSeconds(devices, i.Pairs, bytes)
	}
	if i.UnknownGroups && len(i.Groups) == 0 {
		return 0, false
	}
	var group []int
	if len(i.Groups) > 0 {
		group = i.Groups[0]
	}
	if len(group) == 0 {
		for k := range s.partitions(devices) {
			group = append(group, k)
		}
	}
	if len(group) == 1 {
		return 0, true
	}
	l := s.layout(devices, group)
	if !l.known {
		return 0, false
	}
	seconds, known = s.groupSeconds(kind, bytes, l, len(group)/l.slices, i.OneRing)
	if l.slices > 1 {
		seconds += s.exchangeSeconds(exchanges[kind], bytes/float64(max(l.chips, 1)), l.slices)
	}
	return seconds, known
}

func (s *slice) partitions(devices []int) int {
	if len(devices) > 0 {
		return len(devices)
	}
	return s.shape[0] * s.shape[1] * s.shape[2] * s.perChip
}

// exchanges maps kinds to the names of transfers between slices.
var exchanges = map[string]string{"all-reduce": "ALL_REDUCE", "all-gather": "ALL_GATHER",
	"reduce-scatter": "REDUCE_SCATTER"}

// exchangeSeconds returns the time to send the data of one device to the other slices.
func (s *slice) exchangeSeconds(kind string, bytes float64, slices int) float64 {
	n := float64(max(slices, 2))
	switch kind {
	case "ALL_REDUCE":
		bytes *= 2 * (n - 1) / n
	case "ALL_GATHER":
		bytes *= n - 1
	case "REDUCE_SCATTER", "ALL_TO_ALL":
		bytes *= (n - 1) / n
	}
	return bytes * float64(s.perChip) / s.value(networkRate)
}

// groupSeconds returns the time of a collective within a slice, with the given number of bytes per
// device. All groups run at the same time. If oneRing is true, the collective uses a single ring
// through all chips, and therefore only two links of each chip.
func (s *slice) groupSeconds(kind string, bytes float64, group groupLayout, devices int, oneRing bool) (seconds float64,
	known bool) {
	n, k := float64(devices), float64(group.chips)
	rate := s.value(linkRate) * s.value(linkShare)
	groups := float64(s.perChip) * k / n // groups that share the links of a chip
	rings := []span{{extent: devices, links: 1, hops: 1}}
	if k > 1 {
		rings = group.spans
	} else if rate, groups, k = s.value(dieRate), 1, n; k <= 1 {
		return 0, true
	}
	if rate <= 0 {
		return 0, false
	}
	links, hops, worst := 0.0, 0, 0.0
	for _, x := range rings {
		links, hops = links+x.links, hops+x.hops
		// Half of the data crosses the middle of an axis.
		crossing := float64(x.extent) / 4
		if x.ring {
			crossing /= 2
		}
		worst = max(worst, crossing/min(x.links, 1))
	}
	if oneRing && links > 2 {
		links, hops = 2, group.chips/2
	}
	rounds := 1.0
	if kind == "all-reduce" {
		rounds = 2
	}
	if bytes = ringBytesPerChip(kind, bytes, n, k); kind == "all-to-all" {
		bytes, links = bytes*worst, 1
	}
	return groups*bytes/(links*rate) + rounds*float64(hops)*s.value(hopTime) + s.value(collectiveLag), true
}

// ringBytesPerChip returns the number of bytes that one chip sends in a collective over devices on
// a ring of chips. bytes is the size of a device's operand. For an all-to-all, the result is the
// size of all operands of the chip.
func ringBytesPerChip(kind string, bytes, devices, chips float64) float64 {
	switch kind {
	case "all-reduce":
		return 2 * bytes * (chips - 1) / chips
	case "all-gather":
		return bytes * devices * (chips - 1) / chips
	case "reduce-scatter":
		return bytes * (chips - 1) / chips
	case "all-to-all":
		return bytes * devices / chips
	}
	return bytes
}

// permutationSeconds returns the time of concurrent sends between pairs of partitions, and whether
// the time is known. It is the time of the link that transfers the most bytes.
func (s *slice) permutationSeconds(devices []int, pairs [][2]int, bytes float64) (seconds float64, known bool) {
	if len(pairs) > s.partitions(nil)*s.count {
		return 0, false // each device must send to one other device
	}
	loads := map[link]float64{}
	maxLoad, maxHops := 0.0, 0
	for _, pair := range pairs {
		from, ok := s.position(devices, pair[0])
		to, also := s.position(devices, pair[1])
		if !ok || !also || from.slice != to.slice {
			return 0, false
		}
		hops := 0
		s.route(from.chip, to.chip, func(l link) {
			loads[l] += bytes
			maxLoad = max(maxLoad, loads[l])
			hops++
		})
		maxHops = max(maxHops, hops)
	}
	if s.value(linkRate) <= 0 {
		return 0, false
	}
	return maxLoad/(s.value(linkRate)*s.value(linkShare)) + float64(maxHops)*s.value(hopTime) + s.value(collectiveLag),
		true
}

type link struct {
	chip            [3]int
	axis, direction int
}

// route calls visit for each link of the shortest path between two chips, first along x, then y and
// z.
func (s *slice) route(from, to [3]int, visit func(link)) {
	for d, n := range s.shape {
		distance, direction := to[d]-from[d], 1
		if s.wrap[d] && distance > n/2 {
			distance -= n
		} else if s.wrap[d] && distance < -n/2 {
			distance += n
		}
		if distance < 0 {
			direction, distance = -1, -distance
		}
		for range distance {
			visit(link{from, d, direction})
			from[d] = (from[d] + direction + n) % n
		}
	}
}
