package strategy

// alike says whether a result of a step is the same on all replicas.
type alike struct {
	always bool // whatever its arguments are: what a collective gave, say
	given  bool // if its arguments are
}

// Mirrored says whether the value is known to be the same on every replica: what a
// collective gave, what a step or an operation made of such values alike, and what one
// replica alone made. It is taken where one value for all replicas is asked for. Nothing is compared:
// tensors that only happen to be equal are not known to be.
func (v *PerReplica) Mirrored() bool { return !v.differs() }

// compareReplicas finds which of the step's own results are the same on all replicas, by
// what they are made of. A padded step's are not looked at: the replicas' results may be
// cut to different sizes.
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
