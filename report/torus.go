package report

import (
	"cmp"
	"fmt"
	"slices"
)

// Torus is a slice of TPUs as the collectives of a step see it.
type Torus struct {
	// Shape is the number of chips of a slice along x, y and z, and Rings says which of them close to a
	// ring.
	Shape [3]int  `json:"shape"`
	Rings [3]bool `json:"rings"`
	// Slices is the number of equal slices, and DevicesPerChip that of the cores of a chip that programs
	// see.
	Slices         int `json:"slices"`
	DevicesPerChip int `json:"devices_per_chip"`
	// Places are the chips of the partitions, by their numbers: x, y, z and the slice.
	Places [][4]int `json:"places"`
	// Groups say which partitions talk to each other.
	Groups []AxisGroups `json:"groups"`
	// Links are those of the first slice that carry something, as the collectives are predicted: over
	// the links of all axes that a group spans, as rings.
	Links []Link `json:"links"`

	machine *machine
	devices []int
	loads   map[loadKey]*load
}

// AxisGroups are the partitions that the collectives of an axis join.
type AxisGroups struct {
	// Axis is that of a [Collective]. Pairs says that each first of a group sends to the second, and
	// otherwise each group talks among itself.
	Axis   string  `json:"axis"`
	Pairs  bool    `json:"pairs,omitempty"`
	Groups [][]int `json:"groups"`
}

// Link is a link between two chips.
type Link struct {
	// Chip is where it begins, and Axis, from 0 for x, the way to the chip where it ends.
	Chip [3]int `json:"chip"`
	Axis int    `json:"axis"`
	// Bytes is what it carries in a step, and Back what it carries the other way.
	Bytes int64 `json:"bytes"`
	Back  int64 `json:"back_bytes"`
}

type loadKey struct{ axis, kind, first string }

// load is what collectives over the same groups send: bytes are those of each partition.
type load struct {
	groups [][]int
	bytes  float64
}

// mostPlaced is how many partitions a torus has places of: more cannot be drawn, and would take longer
// than the rest of a report.
const mostPlaced = 1024

// torus is that of the slice of a program; nil if the devices are no TPUs, or too many to draw.
func (r *Report) torus(m *hloModule) *Torus {
	on, known := newMachine(r.Target.Name)
	if !known || r.Replicas*r.LogicalDevices > mostPlaced {
		return nil
	}
	t := &Torus{Shape: on.shape, Rings: on.wrap, Slices: on.slices, DevicesPerChip: on.perChip, Groups: []AxisGroups{}, Links: []Link{},
		machine: on, devices: m.devices, loads: map[loadKey]*load{}}
	for k := range min(r.Replicas*r.LogicalDevices, on.partitions(nil)*max(on.slices, 1)) {
		p, ok := on.place(m.devices, k)
		if !ok {
			return nil
		}
		t.Places = append(t.Places, [4]int{p.chip[0], p.chip[1], p.chip[2], p.slice})
	}
	return t
}

// add notes that collectives of a kind send so many bytes of each partition.
func (t *Torus) add(kind, axis string, groups [][]int, bytes float64) {
	if len(groups) == 0 {
		return // of the network, or not read
	}
	key := loadKey{axis, kind, fmt.Sprint(groups[0])}
	if t.loads[key] == nil {
		t.loads[key] = &load{groups: groups}
	}
	t.loads[key].bytes = bounded(t.loads[key].bytes + bytes)
}

// finish works out what the links carry.
func (t *Torus) finish() {
	carried := map[link]float64{}
	seen := map[loadKey]bool{}
	keys := make([]loadKey, 0, len(t.loads))
	for key := range t.loads {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b loadKey) int {
		return cmp.Or(cmp.Compare(a.axis, b.axis), cmp.Compare(a.kind, b.kind), cmp.Compare(a.first, b.first))
	})
	for _, key := range keys {
		l, pairs := t.loads[key], key.kind == "collective-permute"
		shown := loadKey{axis: key.axis}
		if pairs {
			shown.kind = key.kind
		}
		if !seen[shown] {
			seen[shown] = true
			t.Groups = append(t.Groups, AxisGroups{key.axis, pairs, l.groups})
		}
		for _, group := range l.groups {
			t.carry(carried, key.kind, group, l.bytes)
		}
	}
	m := t.machine
	for l, bytes := range carried {
		if l.by < 0 { // it is listed where it begins
			end := l.chip
			end[l.axis] = (end[l.axis] - 1 + m.shape[l.axis]) % m.shape[l.axis]
			if ahead := (link{end, l.axis, 1}); carried[ahead] == 0 {
				t.Links = append(t.Links, Link{end, l.axis, 0, int64(bounded(bytes))})
			}
			continue
		}
		end := l.chip
		end[l.axis] = (end[l.axis] + 1) % m.shape[l.axis]
		t.Links = append(t.Links, Link{l.chip, l.axis, int64(bounded(bytes)), int64(bounded(carried[link{end, l.axis, -1}]))})
	}
	slices.SortFunc(t.Links, func(a, b Link) int {
		return cmp.Or(slices.Compare(a.Chip[:], b.Chip[:]), cmp.Compare(a.Axis, b.Axis))
	})
}

// carry adds what the links of the first slice carry for one group.
func (t *Torus) carry(carried map[link]float64, kind string, group []int, bytes float64) {
	m := t.machine
	var chips [][3]int
	for _, partition := range group {
		p, ok := m.place(t.devices, partition)
		if !ok || p.slice != t.Places[0][3] {
			continue
		}
		if kind == "collective-permute" || !slices.Contains(chips, p.chip) {
			chips = append(chips, p.chip)
		}
	}
	k := len(chips)
	if k < 2 || k > maxCarriers {
		return
	}
	if kind == "collective-permute" {
		m.route(chips[0], chips[1], func(l link) { carried[l] += bytes })
		return
	}
	bytes = onRing(kind, bytes, float64(len(group)), float64(k))
	var along [3][]int
	blocks := 1
	for d := range along {
		for _, chip := range chips {
			if !slices.Contains(along[d], chip[d]) {
				along[d] = append(along[d], chip[d])
			}
		}
		slices.Sort(along[d])
		blocks *= len(along[d])
	}
	both := func(from, to [3]int, bytes float64) {
		m.route(from, to, func(l link) { carried[l] += bytes })
		m.route(to, from, func(l link) { carried[l] += bytes })
	}
	if blocks != k { // a chain
		for i := range chips[1:] {
			both(chips[i], chips[i+1], bytes)
		}
		return
	}
	ring := func(d int) bool {
		n := len(along[d])
		return m.wrap[d] && n > 2 && n*(along[d][1]-along[d][0]) >= m.shape[d]
	}
	ways := 0
	for d := range along {
		if len(along[d]) > 1 {
			if ways++; ring(d) {
				ways++
			}
		}
	}
	for d, places := range along {
		n := len(places)
		if n < 2 {
			continue
		}
		share := bytes / float64(ways)
		if kind == "all-to-all" { // half of what is sent crosses the middle
			if share = bytes * float64(n) / 4; ring(d) {
				share /= 2
			}
		}
		for _, chip := range chips {
			at := slices.Index(places, chip[d])
			if at == n-1 && !ring(d) {
				continue
			}
			next := chip
			next[d] = places[(at+1)%n]
			both(chip, next, share)
		}
	}
}

// maxCarriers bounds the chips of a group whose links are counted.
const maxCarriers = 4096
