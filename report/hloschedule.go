package report

import "google.golang.org/protobuf/encoding/protowire"

// parseSchedule reads a HloScheduleProto, the order in which a core runs the instructions of each
// computation: a map, as field 1, from computations to sequences of instructions.
func parseSchedule(b []byte, order map[uint64][]uint64) error {
	return fields(b, func(n protowire.Number, v value) error {
		if n != 1 {
			return nil
		}
		var id uint64
		var sequence []uint64
		err := fields(v.bytes, func(n protowire.Number, v value) error {
			switch n {
			case 1:
				id = v.number
			case 2:
				return fields(v.bytes, func(n protowire.Number, v value) (err error) {
					if n == 1 {
						sequence, err = v.numbers(sequence)
					}
					return err
				})
			}
			return nil
		})
		order[id] = sequence
		return err
	})
}

// schedule puts the instructions in the order in which they run. Those that the sequence does not
// name, or names again, keep theirs after it.
func (c *hloComputation) schedule(sequence []uint64) {
	if c == nil {
		return
	}
	ordered, seen := make([]*hloInstruction, 0, len(c.instructions)), map[*hloInstruction]bool{}
	add := func(i *hloInstruction) {
		if i != nil && !seen[i] {
			ordered, seen[i] = append(ordered, i), true
		}
	}
	for _, id := range sequence {
		add(c.byID[id])
	}
	for _, i := range c.instructions {
		add(i)
	}
	c.instructions = ordered
}

// parseAssignment reads a DeviceAssignmentProto: the devices of each partition by replica, as field
// 3. It returns those of the first replica by partition, then those of the next.
func parseAssignment(b []byte) (devices []int, err error) {
	var rows [][]int
	err = fields(b, func(n protowire.Number, v value) error {
		if n != 3 {
			return nil
		}
		row, err := parseGroup(v.bytes)
		rows = append(rows, row)
		return err
	})
	for replica := 0; err == nil && len(rows) > 0 && replica < len(rows[0]); replica++ {
		for _, row := range rows {
			if replica < len(row) {
				devices = append(devices, row[replica])
			}
		}
	}
	return devices, err
}

// parseDonated reads a HloInputOutputAliasProto, of entries as field 1: the place of an array in the
// result as 1, and the number of a parameter as 2.
func (m *hloModule) parseDonated(b []byte) error {
	m.donated = map[int]uint64{}
	return fields(b, func(n protowire.Number, v value) error {
		if n != 1 {
			return nil
		}
		var place []uint64
		var parameter uint64
		err := fields(v.bytes, func(n protowire.Number, v value) (err error) {
			switch n {
			case 1:
				place, err = v.numbers(place)
			case 2:
				parameter = v.number
			}
			return err
		})
		if len(place) == 0 {
			m.donated[0] = parameter
		} else if place[0] < maxDevices {
			m.donated[int(place[0])] = parameter
		}
		return err
	})
}
