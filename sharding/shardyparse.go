package sharding

// ParseShardy parses a Shardy sharding in the form of [Spec.ShardyText] or [Spec.ShardyTextBare]
// and returns the name of its mesh and the spec. The error for malformed text matches [ErrSyntax].
// A [Spec] cannot represent sub-axes, priorities, unreduced axes and inline meshes; their errors
// also match [errors.ErrUnsupported].
func ParseShardy(text string) (meshName string, spec Spec, err error) {
	s := &scanner{subject: "Shardy sharding", text: text}
	s.consume("#sdy.sharding")
	s.expect("<")
	if s.consume("mesh") {
		s.setUnsupported("an inline mesh is not supported, only the name of a mesh")
	}
	meshName = s.scanSymbol()
	s.expect(",")
	spec.dims = []Dim{}
	s.scanList("[", "]", func() { spec.dims = append(spec.dims, s.scanShardyDim()) })
	for s.consume(",") {
		switch {
		case s.consume("unreduced"):
			s.setUnsupported("unreduced axes are not supported")
		case spec.replicated != nil || !s.consume("replicated"):
			s.setError("expected replicated={...} once")
		default:
			s.expect("=")
			spec.replicated = []string{}
			s.scanList("{", "}", func() { spec.replicated = append(spec.replicated, s.scanShardyAxis()) })
		}
	}
	s.expect(">")
	s.expectEnd()
	if s.err != nil {
		return "", Spec{}, s.err
	}
	return meshName, spec, nil
}

func (s *scanner) scanShardyDim() Dim {
	var dim Dim
	s.scanList("{", "}", func() {
		if dim.Open {
			s.setError("'?' must be last")
		}
		if s.consume("?") {
			dim.Open = true
			return
		}
		dim.Axes = append(dim.Axes, s.scanShardyAxis())
	})
	if s.err == nil && s.pos < len(s.text) && s.text[s.pos] == 'p' {
		s.setUnsupported("the priority of a dimension is not supported")
	}
	return dim
}

func (s *scanner) scanShardyAxis() string {
	name := s.scanQuoted()
	if s.err == nil && name == "" {
		s.setError("an axis name is empty")
	}
	if s.err == nil && s.pos < len(s.text) && s.text[s.pos] == ':' {
		s.setUnsupported("a sub-axis of %q is not supported", name)
	}
	return name
}
