package tpu

// ring orders the chips of an x by y by z block so that consecutive chips, and the last and the
// first, are neighbors wherever the sizes allow it: one axis gives a line, even axes give a ring,
// and an odd axis beside another one leaves the plain order, x fastest.
func ring(sizes [3]int) [][3]int {
	x, y, z := sizes[0], sizes[1], sizes[2]
	var long []int // the axes with more than one place
	odd := false
	for axis, n := range sizes {
		if n > 1 {
			long = append(long, axis)
			odd = odd || n%2 == 1
		}
	}
	order := make([][3]int, 0, x*y*z)
	switch {
	case len(long) <= 1 || odd:
		for k := range x * y * z {
			order = append(order, [3]int{k % x, k / x % y, k / x / y})
		}
	case len(long) == 2:
		order = append(order, [3]int{})
		for _, p := range openRing(sizes[long[0]], sizes[long[1]]) {
			var chip [3]int
			chip[long[0]], chip[long[1]] = p[0], p[1]
			order = append(order, chip)
		}
	default:
		order = appendTower(append(order, [3]int{}), x, y, z)
	}
	return order
}

// appendTower walks the planes up, each but for its corner, and comes back down through the
// corners.
func appendTower(order [][3]int, x, y, z int) [][3]int {
	plane := openRing(x, y)
	for level := range z {
		for i := range plane {
			if level%2 == 1 {
				i = len(plane) - 1 - i
			}
			order = append(order, [3]int{plane[i][0], plane[i][1], level})
		}
	}
	for level := z - 1; level > 0; level-- {
		order = append(order, [3]int{0, 0, level})
	}
	return order
}

// openRing walks a plane from beside its corner (0,0) to the other side of it: to and fro over the
// rows without their first column, then back through that column.
func openRing(x, y int) [][2]int {
	order := make([][2]int, 0, x*y)
	for row := range y {
		for i := 1; i < x; i++ {
			at := i
			if row%2 == 1 {
				at = x - i
			}
			order = append(order, [2]int{at, row})
		}
	}
	for row := y - 1; row > 0; row-- {
		order = append(order, [2]int{0, row})
	}
	return order
}
