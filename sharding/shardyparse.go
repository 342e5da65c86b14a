package sharding

// ParseShardy parses a Shardy sharding in the form of [Spec.Shardy] or [Spec.ShardyBare] and
// returns the name of its mesh and the spec. The error for malformed text matches [ErrSyntax]. A
// [Spec] cannot represent sub-axes, priorities, unreduced axes and inline meshes; their errors also
// match [errors.ErrUnsupported].
func ParseShardy(text string) (meshName string, spec Spec, err error) {
	s := &scanner{form: "Shardy sharding", text: text}
	s.accept("#sdy.sharding")
	s.expect("<")
	if s.accept("mesh") {
		s.unsupported("an inline mesh is not supported, only the name of a mesh")
	}
	meshName = s.symbol()
	s.expect(",")
	spec.dims = []Dim{}
	s.list("[", "]", func() { spec.dims = append(spec.dims, s.shardyDim()) })
	for s.accept(",") {
		switch {
		case s.accept("unreduced"):
			s.unsupported("unreduced axes are not supported")
		case spec.replicated != nil || !s.accept("replicated"):
			s.fail("expected replicated={...} once")
		default:
			s.expect("=")
			spec.replicated = []string{}
			s.list("{", "}", func() { spec.replicated = append(spec.replicated, s.axisName()) })
		}
	}
	s.expect(">")
	s.end()
	if s.err != nil {
		return "", Spec{}, s.err
	}
	return meshName, spec, nil
}

func (s *scanner) shardyDim() Dim {
	var dim Dim
	s.list("{", "}", func() {
		if dim.Open {
			s.fail("'?' must be last")
		}
		if s.accept("?") {
			dim.Open = true
			return
		}
		dim.Axes = append(dim.Axes, s.axisName())
	})
	if s.err == nil && s.pos < len(s.text) && s.text[s.pos] == 'p' {
		s.unsupported("the priority of a dimension is not supported")
	}
	return dim
}

func (s *scanner) axisName() string {
	name := s.quoted()
	if s.err == nil && name == "" {
		s.fail("an axis name is empty")
	}
	if s.err == nil && s.pos < len(s.text) && s.text[s.pos] == ':' {
		s.unsupported("a sub-axis of %q is not supported", name)
	}
	return name
}
