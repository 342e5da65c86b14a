package spmd_test

import (
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// pair is a step of two products with the given annotations: of the first variable and its
// optimizer state, of the second variable, and of the line between them. A line annotation of kind
// None is omitted.
func pair(t *testing.T, up, down, between logical.Annotation) *spmd.Module {
	sig := spmd.Signature{
		Arguments: []spmd.Tensor{{Name: "x", PerReplica: true}, {Name: "/up", Annotation: up, Donated: true},
			{Name: "/down", Annotation: down},
			{Name: "/adam/up_1st_moment", Annotation: up, Donated: true, Result: 1}},
		Results: []spmd.Tensor{{Name: "/up", Annotation: up}, {Name: "/adam/up_1st_moment", Annotation: up},
			{Name: "y", PerReplica: true}},
	}
	return build(t, spmd.Options{Replicas: 2, LogicalDevices: 2, Origins: true}, sig, func(g *graph.Graph) []*graph.Node {
		x, up, down, moment := param(g, "x", 4, 8), param(g, "/up", 8, 16), param(g, "/down", 16, 8),
			param(g, "/adam/up_1st_moment", 8, 16)
		h := logical.Apply(graph.Dot(x, up).Product(), between)
		y := graph.Dot(h, down).Product()
		return []*graph.Node{graph.Add(up, moment), graph.MulScalar(moment, 0.5), y}
	})
}

// A module with another annotation equals the module of a step that was written with this
// annotation.
func TestAModuleWithAnotherAnnotation(t *testing.T) {
	columns, rows := logical.SplitInto(1, 2), logical.SplitInto(2, 1)
	splits := func(m *spmd.Module) []spmd.AnnotationSite {
		all, err := m.Annotations()
		require.NoError(t, err)
		return all
	}
	split := func(m *spmd.Module, name string) []spmd.AnnotationSite {
		for _, s := range splits(m) {
			if s.Name == name {
				return []spmd.AnnotationSite{s}
			}
		}
		t.Fatalf("no split of %q", name)
		return nil
	}
	text := func(m *spmd.Module, splits []spmd.AnnotationSite, to logical.Annotation) string {
		changed, err := m.WithAnnotation(splits, to)
		require.NoError(t, err)
		return string(changed.Text)
	}
	m := pair(t, columns, rows, columns)
	before := string(m.Text)
	var names []string
	for _, s := range splits(m) {
		names = append(names, s.Name+" "+s.Annotation.String())
	}
	assert.Equal(t, []string{"x none", "/up 1,2", "/down 2,1", " 1,2"}, names, "the state is its variable's")
	assert.Equal(t, string(pair(t, rows, rows, columns).Text), text(m, split(m, "/up"), rows))
	assert.Equal(t, string(pair(t, columns, columns, columns).Text), text(m, split(m, "/down"), columns))
	assert.Equal(t, string(pair(t, columns, rows, rows).Text), text(m, split(m, ""), rows))
	constraints := func(text string) int { return strings.Count(text, "sdy.sharding_constraint") }
	assert.Equal(t, constraints(before)-1, constraints(text(m, split(m, ""), logical.Annotation{})), "left out")
	again, err := m.WithAnnotation(split(m, "/up"), rows)
	require.NoError(t, err)
	assert.Equal(t, before, text(again, split(again, "/up"), columns), "and back")
	assert.Equal(t, before, string(m.Text))

	_, err = m.WithAnnotation(split(m, "/up"), logical.SplitInto(2, 2))
	assert.ErrorContains(t, err, `"/up"`)
	_, err = m.WithAnnotation(split(m, ""), logical.SplitInto(3, 1))
	assert.ErrorContains(t, err, "variant_test.go:")
	known := split(m, "/up")
	m.ReleaseTrace()
	_, err = m.Annotations()
	assert.Equal(t, errkind.FailedPreconditionError, errkind.KindOf(err))
	_, err = m.WithAnnotation(known, rows)
	assert.Equal(t, errkind.FailedPreconditionError, errkind.KindOf(err))
	assert.Empty(t, splits(build(t, spmd.Options{Replicas: 2}, spmd.Signature{Arguments: make([]spmd.Tensor, 1),
		Results: make([]spmd.Tensor, 1)},
		func(g *graph.Graph) []*graph.Node { return []*graph.Node{param(g, "x", 4)} })), "one logical device")
}
