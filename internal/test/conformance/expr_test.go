package conformance

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/require"
)

// build builds the node for an expression.
func build(c *caseRun, text string, names map[string]*graph.Node,
	calls map[string]func(*graph.Node) *graph.Node) *graph.Node {
	e, err := parser.ParseExpr(text)
	if err != nil {
		c.unmapped("expression %q", text)
	}
	var node func(e ast.Expr) *graph.Node
	node = func(e ast.Expr) *graph.Node {
		switch e := e.(type) {
		case *ast.ParenExpr:
			return node(e.X)
		case *ast.BasicLit:
			x, err := strconv.ParseFloat(e.Value, 64)
			require.NoError(c, err)
			return graph.Const(names["id"].Graph(), float32(x))
		case *ast.Ident:
			if x, ok := names[e.Name]; ok {
				return x
			}
		case *ast.CallExpr:
			if f, ok := e.Fun.(*ast.Ident); ok && calls[f.Name] != nil && len(e.Args) == 1 {
				return calls[f.Name](node(e.Args[0]))
			}
		case *ast.BinaryExpr:
			x, y := node(e.X), node(e.Y)
			switch e.Op {
			case token.ADD:
				return graph.Add(x, y)
			case token.SUB:
				return graph.Sub(x, y)
			case token.MUL:
				return graph.Mul(x, y)
			case token.QUO:
				return graph.Div(x, y)
			}
		}
		c.unmapped("expression of %T", e)
		return nil
	}
	return node(e)
}

// text returns a string input.
func (g golden) text(name string) string {
	s, _ := g.in(name).(string)
	return s
}

// list returns an input that is a list.
func (g golden) list(name string) []any {
	l, _ := g.in(name).([]any)
	return l
}

// outputs returns the named outputs.
func (g golden) outputs() map[string]any {
	m, _ := g.Outputs.(map[string]any)
	return m
}

// plainValue converts a JSON value to Go values. Numbers become int or float64.
func plainValue(x any) any {
	switch x := x.(type) {
	case json.Number:
		if i, err := strconv.Atoi(x.String()); err == nil {
			return i
		}
		f, _ := x.Float64()
		return f
	case []any:
		list := make([]any, len(x))
		for i := range x {
			list[i] = plainValue(x[i])
		}
		return list
	case map[string]any:
		m := map[string]any{}
		for k := range x {
			m[k] = plainValue(x[k])
		}
		return m
	}
	return x
}
