package strategy

// alike says whether a result of a step is the same on all replicas.
type alike struct {
	always bool // whatever its arguments are: what a collective gave, say
	given  bool // if its arguments are
}

// Mirrored reports whether the value is known to be the same on every replica: a collective gave
// it, one replica alone made it, or a step or an operation made it of such values on every replica
// alike. A call that asks for one value for all replicas takes such a value. Nothing is compared:
// Mirrored is false for tensors that happen to be equal.
func (v *PerReplica) Mirrored() bool { return !v.differs() }

// compareReplicas finds which of the step's own results are the same on all replicas, by what they
// are made of. A padded step's are not looked at: the replicas' results may be cut to different
// sizes.
func (t *trace) compareReplicas() error {
	if t.f.opts.mirroredResults || len(t.padding.sizes) > 0 || t.own == 0 {
		return nil
	}
	own := t.outputs[:t.own]
	differing, err := t.rc.differs(own, true)
	if err != nil {
		return err
	}
	made, err := t.rc.differs(own, false)
	if err != nil {
		return err
	}
	t.alike = make([]alike, t.own)
	for i := range own {
		t.alike[i] = alike{always: !differing[i], given: !made[i]}
	}
	return nil
}

// compare notes whether a result is the same on all replicas, given the arguments.
func (p *program) compare(result int, v *distributed, values []Value) {
	if !v.perReplica {
		return
	}
	if v.equal = v.strategy.replicas == 1; result >= len(p.alike) {
		return
	}
	v.equal = v.equal || p.alike[result].always
	if v.equal || !p.alike[result].given {
		return
	}
	for _, x := range values {
		if x.base().differs() {
			return
		}
	}
	v.equal = true
}
