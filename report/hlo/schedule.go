package hlo

import "github.com/tpustrategy/tpustrategy/internal/protoint"

// parseSchedule parses a HloScheduleProto, which contains the order in which a core runs the
// instructions of each computation. Field 1 is a map from computations to instruction sequences.
func parseSchedule(b []byte, order map[uint64][]uint64) error {
	return decode(b, protoint.Scanner{1: func(b []byte) error {
		var id uint64
		var sequence []uint64
		err := decode(b, protoint.Scanner{1: &id, 2: protoint.Scanner{1: &sequence}})
		order[id] = sequence
		return err
	}})
}

// schedule sorts the instructions into the order of sequence. Instructions that the sequence does
// not contain follow in their previous order.
func (c *Computation) schedule(sequence []uint64) {
	if c == nil {
		return
	}
	ordered, seen := make([]*Instruction, 0, len(c.Instructions)), map[*Instruction]bool{}
	add := func(i *Instruction) {
		if i != nil && !seen[i] {
			ordered, seen[i] = append(ordered, i), true
		}
	}
	for _, id := range sequence {
		add(c.byID[id])
	}
	for _, i := range c.Instructions {
		add(i)
	}
	c.Instructions = ordered
}

// parseAssignment parses a DeviceAssignmentProto, whose field 3 contains the devices of all
// replicas for each partition. It returns the devices replica by replica, in the order of the
// partitions.
func parseAssignment(b []byte) (devices []int, err error) {
	var ids []uint64 // partition by partition
	partitions, replicas := 0, 0
	partition := protoint.Scanner{1: &ids}
	err = decode(b, protoint.Scanner{3: func(b []byte) error {
		before := len(ids)
		if err := decode(b, partition); err != nil {
			return err
		}
		if partitions++; partitions > 1 && len(ids)-before != replicas {
			return malformed(nil, "a device assignment with partitions of %d and %d replicas", replicas, len(ids)-before)
		}
		replicas = len(ids) - before
		return nil
	}})
	if err != nil {
		return nil, err
	}
	devices = make([]int, len(ids))
	for i, id := range ids {
		if id >= maxDevices {
			return nil, malformed(nil, "a device of more than %d", maxDevices)
		}
		devices[i%replicas*partitions+i/replicas] = int(id)
	}
	return devices, nil
}

// parseDonated parses a HloInputOutputAliasProto. Each entry in its field 1 consists of the index
// of an array in the result (field 1) and the index of a parameter (field 2).
func (p *Program) parseDonated(b []byte) error {
	p.Donated = map[int]uint64{}
	return decode(b, protoint.Scanner{1: func(b []byte) error {
		var place []uint64
		var parameter uint64
		err := decode(b, protoint.Scanner{1: &place, 2: &parameter})
		if len(place) == 0 {
			p.Donated[0] = parameter
		} else if place[0] < maxDevices {
			p.Donated[int(place[0])] = parameter
		}
		return err
	}})
}
