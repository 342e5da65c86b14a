package cost

import (
	"cmp"
	"fmt"
	"slices"
)

// Torus describes the chips and links of a TPU slice, and the communication of a step over these
// links.
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
}

// AxisGroups contains the groups of partitions that communicate in the collectives over one axis.
type AxisGroups struct {
	// Axis is the axis of a a collective. If Pairs is set, the first partition of each group sends
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

// GroupTraffic contains the total traffic of the collectives of one kind over the same groups of
// partitions.
type GroupTraffic struct {
	// Kind and Axis are the kind and the axis of the collectives.
	Kind, Axis string
	Groups     [][]int
	// Bytes is the size of the operands of one partition, over the whole step.
	Bytes float64
}

// maxPartitions bounds the partitions of a torus: more cannot be drawn, and would cost more time than
// the rest of a report.
const maxPartitions = 1024

// NewTorus returns the chips of a slice, and the load of each link for the given traffic. devices
// are the devices of the program as in [hlo.Program]. NewTorus returns nil if the devices are not
// TPUs, or if there are too many devices to draw.
func NewTorus(target string, devices []int, partitions int, traffic []GroupTraffic) *Torus {
	s := newSlice(target)
	if s == nil || partitions > maxPartitions {
		return nil
	}
	t := &Torus{Shape: s.shape, Rings: s.wrap, Slices: s.count, DevicesPerChip: s.perChip, Groups: []AxisGroups{},
		Links: []Link{}}
	for k := range min(partitions, s.partitions(nil)*max(s.count, 1)) {
		p, ok := s.position(devices, k)
		if !ok {
			return nil
		}
		t.Places = append(t.Places, [4]int{p.chip[0], p.chip[1], p.chip[2], p.slice})
	}
	l := &linkLoads{slice: s, devices: devices, bytes: map[link]float64{}}
	if len(t.Places) > 0 {
		l.first = t.Places[0][3]
	}
	t.addTraffic(l, traffic)
	return t
}

func (t *Torus) addTraffic(l *linkLoads, traffic []GroupTraffic) {
	slices.SortFunc(traffic, func(a, b GroupTraffic) int {
		return cmp.Or(cmp.Compare(a.Axis, b.Axis), cmp.Compare(a.Kind, b.Kind), cmp.Compare(fmt.Sprint(a.Groups[0]),
			fmt.Sprint(b.Groups[0])))
	})
	type shownGroups struct {
		axis  string
		pairs bool
	}
	shown := map[shownGroups]bool{}
	for _, x := range traffic {
		key := shownGroups{x.Axis, x.Kind == "collective-permute"}
		if !shown[key] {
			shown[key] = true
			t.Groups = append(t.Groups, AxisGroups{x.Axis, key.pairs, x.Groups})
		}
		for _, group := range x.Groups {
			l.add(x.Kind, group, x.Bytes)
		}
	}
	for at, bytes := range l.bytes {
		n := l.slice.shape[at.axis]
		end := at.chip
		if at.direction < 0 { // a link is listed at its start, with the bytes of both directions
			end[at.axis] = (end[at.axis] - 1 + n) % n
			if ahead := (link{end, at.axis, 1}); l.bytes[ahead] == 0 {
				t.Links = append(t.Links, Link{end, at.axis, 0, int64(bounded(bytes))})
			}
			continue
		}
		end[at.axis] = (end[at.axis] + 1) % n
		t.Links = append(t.Links, Link{at.chip, at.axis, int64(bounded(bytes)),
			int64(bounded(l.bytes[link{end, at.axis, -1}]))})
	}
	slices.SortFunc(t.Links, func(a, b Link) int {
		return cmp.Or(slices.Compare(a.Chip[:], b.Chip[:]), cmp.Compare(a.Axis, b.Axis))
	})
}

// linkLoads adds up the bytes that each link of the first slice transfers.
type linkLoads struct {
	slice   *slice
	devices []int
	first   int // the number of the first slice
	bytes   map[link]float64
}

// maxGroupChips bounds the chips of a group whose links are counted.
const maxGroupChips = 4096

func (l *linkLoads) add(kind string, group []int, bytes float64) {
	var chips [][3]int
	for _, partition := range group {
		p, ok := l.slice.position(l.devices, partition)
		if !ok || p.slice != l.first {
			continue
		}
		if kind == "collective-permute" || !slices.Contains(chips, p.chip) {
			chips = append(chips, p.chip)
		}
	}
	k := len(chips)
	if k < 2 || k > maxGroupChips {
		return
	}
	if kind == "collective-permute" {
		l.addRoute(chips[0], chips[1], bytes)
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
	addBothWays := func(from, to [3]int, bytes float64) {
		l.addRoute(from, to, bytes)
		l.addRoute(to, from, bytes)
	}
	if blocks != k { // a chain
		for i := range chips[1:] {
			addBothWays(chips[i], chips[i+1], bytes)
		}
		return
	}
	isRing := func(d int) bool {
		n := len(along[d])
		return l.slice.wrap[d] && n > 2 && n*(along[d][1]-along[d][0]) >= l.slice.shape[d]
	}
	links := 0 // of a chip, over which its traffic is divided
	for d := range along {
		if len(along[d]) > 1 {
			if links++; isRing(d) {
				links++
			}
		}
	}
	for d, places := range along {
		n := len(places)
		if n < 2 {
			continue
		}
		linkBytes := bytes / float64(links)
		if kind == "all-to-all" { // half of the data crosses the middle
			if linkBytes = bytes * float64(n) / 4; isRing(d) {
				linkBytes /= 2
			}
		}
		for _, chip := range chips {
			at := slices.Index(places, chip[d])
			if at == n-1 && !isRing(d) {
				continue
			}
			next := chip
			next[d] = places[(at+1)%n]
			addBothWays(chip, next, linkBytes)
		}
	}
}

func (l *linkLoads) addRoute(from, to [3]int, bytes float64) {
	l.slice.route(from, to, func(at link) { l.bytes[at] += bytes })
}
