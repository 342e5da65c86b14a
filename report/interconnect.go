package report

import "slices"

// idsOfASlice is the difference between the device ids of consecutive slices.
const idsOfASlice = 100_000

// place is the chip of a partition.
type place struct {
	chip  [3]int
	slice int
}

// place returns the place of a partition. libtpu numbers the devices of a slice by core, x, y and
// z, the core fastest.
func (m *machine) place(devices []int, partition int) (p place, known bool) {
	id := partition
	if len(devices) > 0 {
		if partition < 0 || partition >= len(devices) {
			return p, false
		}
		id = devices[partition]
	}
	p.slice, id = id/idsOfASlice, id%idsOfASlice/m.perChip
	for d, n := range m.shape {
		p.chip[d], id = id%n, id/n
	}
	return p, id == 0
}

// span is the extent of a group of chips along one axis of a slice.
type span struct {
	extent int
	// links is the number of links that transfer the group's bytes in one direction. Adjacent
	// groups share links.
	links float64
	hops  int
	ring  bool
}

// maxLies bounds the number of cached groups, because a malformed program can have any number.
const maxLies = 64

// lie is the position of a group of devices: the chips of its first slice along each axis if they
// are a block, and otherwise a chain.
type lie struct {
	group  []int
	known  bool
	spans  []span
	chips  int // in the first slice
	slices int
}

// lie returns the position of a group. It is computed once per group.
func (m *machine) lie(devices, group []int) lie {
	for _, l := range m.lies {
		if slices.Equal(l.group, group) {
			return l
		}
	}
	l := lie{group: group, known: true}
	here := make([]bool, m.shape[0]*m.shape[1]*m.shape[2]) // the chips of the group in its first slice
	var along [3][]bool
	for d, n := range m.shape {
		along[d] = make([]bool, n)
	}
	var others []int
	for _, partition := range group {
		p, ok := m.place(devices, partition)
		if !ok {
			l = lie{group: group}
			break
		}
		if !slices.Contains(others, p.slice) {
			others = append(others, p.slice)
		}
		chip := (p.chip[2]*m.shape[1]+p.chip[1])*m.shape[0] + p.chip[0]
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
		l.slices, l.spans = len(others), m.spans(along, l.chips)
	}
	if len(m.lies) < maxLies {
		m.lies = append(m.lies, l)
	}
	return l
}

// spans returns the extent of a number of chips at the given positions along each axis.
func (m *machine) spans(along [3][]bool, chips int) (all []span) {
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
		s := span{extent: n, ring: m.wrap[d] && n*stride >= m.shape[d] && n > 2, links: 1 / float64(stride), hops: (n - 1) * stride}
		if s.ring {
			s.links, s.hops = 2*s.links, n/2*stride
		}
		all = append(all, s)
	}
	if blocks != chips {
		return []span{{extent: chips, links: 1, hops: chips - 1}}
	}
	return all
}

// collective returns the time of a collective that uses its links alone, and whether it is known.
func (m *machine) collective(of *hloModule, c *hloComputation, i *hloInstruction, kind string) (seconds float64, known bool) {
	var bytes float64
	for k := range i.operands {
		bytes += float64(c.operand(i, k).bytes())
	}
	if kind == "collective-permute" {
		return m.permute(of.devices, i.pairs, bytes)
	}
	if i.unreadable && len(i.groups) == 0 {
		return 0, false
	}
	var group []int
	if len(i.groups) > 0 {
		group = i.groups[0]
	}
	if len(group) == 0 {
		for k := range m.partitions(of.devices) {
			group = append(group, k)
		}
	}
	if len(group) == 1 {
		return 0, true
	}
	l := m.lie(of.devices, group)
	if !l.known {
		return 0, false
	}
	seconds, known = m.inside(kind, bytes, l, len(group)/l.slices, i.oneRing)
	if l.slices > 1 {
		seconds += m.exchange(exchanges[kind], bytes/float64(max(l.chips, 1)), l.slices)
	}
	return seconds, known
}

// partitions returns the number of a program's partitions.
func (m *machine) partitions(devices []int) int {
	if len(devices) > 0 {
		return len(devices)
	}
	return m.shape[0] * m.shape[1] * m.shape[2] * m.perChip
}

// exchanges maps kinds to the names of transfers between slices.
var exchanges = map[string]string{"all-reduce": "ALL_REDUCE", "all-gather": "ALL_GATHER", "reduce-scatter": "REDUCE_SCATTER"}

// exchange returns the time of the data that a device sends to the other slices.
func (m *machine) exchange(kind string, bytes float64, slices int) float64 {
	n := float64(max(slices, 2))
	switch kind {
	case "ALL_REDUCE":
		bytes *= 2 * (n - 1) / n
	case "ALL_GATHER":
		bytes *= n - 1
	case "REDUCE_SCATTER", "ALL_TO_ALL":
		bytes *= (n - 1) / n
	}
	return bytes * float64(m.perChip) / m.value(networkRate)
}

// inside returns the time of a collective among devices of a slice with the given number of bytes
// each. All groups run at the same time. One ring through all chips uses two links of each chip.
func (m *machine) inside(kind string, bytes float64, group lie, devices int, oneRing bool) (seconds float64, known bool) {
	n, k := float64(devices), float64(group.chips)
	rate := m.value(linkRate) * m.value(linkShare)
	groups := float64(m.perChip) * k / n // groups that share the links of a chip
	rings := []span{{extent: devices, links: 1, hops: 1}}
	if k > 1 {
		rings = group.spans
	} else if rate, groups, k = m.value(dieRate), 1, n; k <= 1 {
		return 0, true
	}
	if rate <= 0 {
		return 0, false
	}
	links, hops, worst := 0.0, 0, 0.0
	for _, s := range rings {
		links, hops = links+s.links, hops+s.hops
		// Half of the data crosses the middle of an axis.
		crosses := float64(s.extent) / 4
		if s.ring {
			crosses /= 2
		}
		worst = max(worst, crosses/min(s.links, 1))
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
	return groups*bytes/(links*rate) + rounds*float64(hops)*m.value(hopTime) + m.value(collectiveLag), true
}

// ringBytesPerChip returns the bytes that one chip sends in a collective over devices on a ring of
// chips. bytes is the operand's size per device. For an all-to-all the result is the size of all
// operands of the chip.
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

// permute returns the time of concurrent sends between pairs: the time of the link with the highest
// load.
func (m *machine) permute(devices []int, pairs [][2]int, bytes float64) (seconds float64, known bool) {
	if len(pairs) > m.partitions(nil)*m.slices {
		return 0, false // each device must send to one other device
	}
	loads := map[link]float64{}
	most, far := 0.0, 0
	for _, pair := range pairs {
		from, ok := m.place(devices, pair[0])
		to, also := m.place(devices, pair[1])
		if !ok || !also || from.slice != to.slice {
			return 0, false
		}
		hops := 0
		m.route(from.chip, to.chip, func(l link) {
			loads[l] += bytes
			most = max(most, loads[l])
			hops++
		})
		far = max(far, hops)
	}
	if m.value(linkRate) <= 0 {
		return 0, false
	}
	return most/(m.value(linkRate)*m.value(linkShare)) + float64(far)*m.value(hopTime) + m.value(collectiveLag), true
}

// link is a link of a chip along an axis, in direction 1 or -1.
type link struct {
	chip     [3]int
	axis, by int
}

// route visits the links of the shortest path between two chips along x, y and z.
func (m *machine) route(from, to [3]int, visit func(link)) {
	for d, n := range m.shape {
		distance, by := to[d]-from[d], 1
		if m.wrap[d] && (distance > n/2 || distance < -n/2) {
			distance -= n * sign(distance)
		}
		if distance < 0 {
			by, distance = -1, -distance
		}
		for range distance {
			visit(link{from, d, by})
			from[d] = (from[d] + by + n) % n
		}
	}
}

func sign(n int) int {
	if n < 0 {
		return -1
	}
	return 1
}
