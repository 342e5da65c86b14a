package tpu

// ringOrder orders the chips of a block so that consecutive chips, and the last and the first chip,
// are neighbors. This requires that all sizes greater than 1 are even. Otherwise, or if only one
// size is greater than 1, the order is row by row, with x fastest.
func ringOrder(sizes [3]int) [][3]int {
	x, y, z := sizes[0], sizes[1], sizes[2]
	var long []int // axes with more than one chip
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

// appendTower appends the chips of an x by y by z block to a path, except the chip (0,0,0). The
// path visits the planes from bottom to top without their corners (0,0), and then visits the
// corners from top to bottom.
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

// openRing returns a path through the chips of a plane without the corner (0,0). The path starts
// and ends next to the corner. It visits the rows without their first column in alternating
// directions, and then returns through the first column.
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
