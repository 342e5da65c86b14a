package report

import (
	"cmp"
	"fmt"
	"slices"
)

// Torus is a slice of TPUs with the communication of a step's collectives.
type Torus struct {
	// Shape is the number of chips of a slice along x, y and z. Rings is whether the chips along
	// each axis form a ring.
	Shape [3]int  `json:"shape"`
	Rings [3]bool `json:"rings"`
	// Slices is the number of equal slices. DevicesPerChip is the number of devices per chip that
	// programs use.
	Slices         int `json:"slices"`
	DevicesPerChip int `json:"devices_per_chip"`
	// Places are the chips of the partitions as coordinates: x, y, z and the slice.
	Places [][4]int `json:"places"`
	// Groups are the partitions that communicate with each other.
	Groups []AxisGroups `json:"groups"`
	// Links are the links of the first slice with traffic. The traffic follows the prediction of
	// the collectives: as rings over the links of all axes that a group spans.
	Links []Link `json:"links"`

	machine *machine
	devices []int
	loads   map[loadKey]*load
}

// AxisGroups are the groups of partitions of the collectives over an axis.
type AxisGroups struct {
	// Axis is the axis of a [Collective]. If Pairs is set, the first partition of each group sends
	// to the second. Otherwise all partitions of a group communicate.
	Axis   string  `json:"axis"`
	Pairs  bool    `json:"pairs,omitempty"`
	Groups [][]int `json:"groups"`
}

// Link is a link between two chips.
type Link struct {
	// Chip is the start of the link. The link goes to the next chip along Axis, where 0 is x.
	Chip [3]int `json:"chip"`
	Axis int    `json:"axis"`
	// Bytes is the number of bytes that the link transfers in a step. Back is the number in the
	// opposite direction.
	Bytes int64 `json:"bytes"`
	Back  int64 `json:"back_bytes"`
}

type loadKey struct{ axis, kind, first string }

// load is the traffic of collectives over the same groups. bytes are the bytes of each partition.
type load struct {
	groups [][]int
	bytes  float64
}

// mostPlaced bounds the partitions of a torus: more cannot be drawn, and would cost more time than
// the rest of a report.
const mostPlaced = 1024

// torus returns the torus of the slice of a program. It returns nil if the devices are not TPUs, or
// too many to draw.
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

// add records that collectives of a kind send the given bytes of each partition.
func (t *Torus) add(kind, axis string, groups [][]int, bytes float64) {
	if len(groups) == 0 {
		return // over the network, or in an unsupported format
	}
	key := loadKey{axis, kind, fmt.Sprint(groups[0])}
	if t.loads[key] == nil {
		t.loads[key] = &load{groups: groups}
	}
	t.loads[key].bytes = bounded(t.loads[key].bytes + bytes)
}

// finish computes the load of the links.
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
		if l.by < 0 { // listed at its start
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

// carry adds the traffic of one group to the links of the first slice.
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
	bytes = ringBytesPerChip(kind, bytes, float64(len(group)), float64(k))
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
		if kind == "all-to-all" { // half of the data crosses the middle
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
