package lowering

import (
	"cmp"
	"path"
	"runtime"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"

	"github.com/tpustrategy/tpustrategy/internal/usercode"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// GoMLX adds each op while the user's code is on the stack, so the stack contains the line that an
// op belongs to. The exception are gradients: GoMLX walks back through the nodes and calls
// [Differentiate] with each node. The layer of an op is the scope of the variables that flow into
// it.

// The stack is read up to fewFrames, which is cheap, and up to maxFrames if no user code is found
// there.
const fewFrames, maxFrames = 12, 64

// lines finds the origins of the ops of one computation.
type lines struct {
	pcs        [maxFrames]uintptr
	frames     map[uintptr]frame
	known      map[ir.Origin]*ir.Origin
	values     map[*stablehlo.Value]*ir.Origin
	unassigned []*Value     // values of library code without a known line of the user's code
	caller     ir.Origin    // the user's line that started the trace
	adjoint    *ir.Origin   // of the node whose gradient is being computed
	gomlx      bool         // GoMLX computes that gradient without calls to user code
	parameters []*ir.Origin // of the entry function
	ops        int
	within     bool // inside an op, which may add other ops
	passes     bool // the current op returns its operand
	call       call
}

// call contains the results of one call on a user's line. Their layer is the scope of the variables
// that the call reads, also for ops added before the first read.
type call struct {
	at     ir.Origin // without the layer
	named  bool      // a variable was read
	made   []*stablehlo.Statement
	values []*Value
}

func newLines() *lines {
	l := &lines{frames: map[uintptr]frame{}, known: map[ir.Origin]*ir.Origin{}, values: map[*stablehlo.Value]*ir.Origin{}}
	pcs := make([]uintptr, 256)
	for _, pc := range pcs[:runtime.Callers(2, pcs)] {
		f := l.frame(pc)
		if f.role == user {
			l.caller.File, l.caller.Line, l.caller.Function = f.file, f.line, f.function
			break
		}
		l.caller.Call = f.function
	}
	return l
}

// begin is called before an op with the given operands is added. The caller calls the returned
// function with the statements and the results of the op. begin returns nil for an op that is part
// of another op.
func (l *lines) begin(operands []*Value) func(made []*stablehlo.Statement, results []compute.Value) {
	if l == nil || l.within {
		return nil
	}
	origin, flow := l.of(operands)
	l.within, l.passes = true, false
	return func(made []*stablehlo.Statement, results []compute.Value) {
		if l.passes && len(operands) > 0 && operands[0].origin != nil {
			origin = operands[0].origin
		}
		defer l.name(operands, origin, made, results)
		for _, v := range operands {
			l.reads(v, origin)
		}
		for _, s := range made {
			for _, v := range s.Outputs {
				l.values[v] = origin
			}
		}
		for _, v := range results {
			v := v.(*Value)
			v.origin, v.flow, v.op = origin, flow, l.ops
			if origin.Call == "" {
				v.source = &source{made, operands}
				l.unassigned = append(l.unassigned, v)
			}
		}
		l.ops++
	}
}

// frame describes a line of the stack.
type frame struct {
	role
	file, function string
	line           int
}

type role int

const (
	graphs    role = iota // adds ops for its caller
	library               // calls ops
	gradients             // walks back through the nodes
	outside               // started the trace: outer frames belong to no op
	updates               // updates all variables: an op belongs to a variable, not to the calling line
	user
)

// roles maps library functions to roles other than library.
var roles = []struct {
	prefix string
	role   role
}{
	{"github.com/gomlx/gomlx/core/graph.Gradient", gradients},
	{"github.com/gomlx/gomlx/core/graph.(*Exec)", outside},
	{"github.com/gomlx/gomlx/ml/train/optimizer.", updates},
	{"github.com/gomlx/gomlx/core/", graphs},
	{"github.com/gomlx/gomlx/ml/model.", graphs},
	{"github.com/gomlx/compute", graphs},
	{"github.com/tpustrategy/tpustrategy/lowering.", graphs},
	{"github.com/tpustrategy/tpustrategy/lowering/ir.", graphs},
	{"github.com/tpustrategy/tpustrategy/lowering/ragged.", graphs},
	{"github.com/tpustrategy/tpustrategy/lowering/spmd.", graphs},
	{"github.com/tpustrategy/tpustrategy/internal/engine/", library},
	{"github.com/tpustrategy/tpustrategy/internal/", graphs},
	{"github.com/tpustrategy/tpustrategy/strategy.(*Function).lower", outside},
	{"runtime.", graphs},
	{"reflect.", graphs},
}

func (l *lines) frame(pc uintptr) frame {
	if f, known := l.frames[pc]; known {
		return f
	}
	at, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	f := frame{role: user, file: usercode.File(at), function: usercode.Function(at), line: at.Line}
	if usercode.Library(at) {
		f.role = library
		for _, r := range roles {
			if strings.HasPrefix(at.Function, r.prefix) {
				f.role = r.role
				break
			}
		}
	}
	l.frames[pc] = f
	return f
}

// site reads the stack. It returns the user's line that adds the op, the function that the line
// called, the library function that adds the op itself, and whether the op belongs to a gradient. A
// missing frame is empty.
func (l *lines) site() (line, call, own frame, gradient bool) {
	if l.gomlx {
		return line, call, own, true
	}
	for read, n := 0, fewFrames; ; n = maxFrames {
		all := l.pcs[:runtime.Callers(4, l.pcs[:n])]
		for _, pc := range all[read:] {
			f := l.frame(pc)
			switch {
			case f.role == outside, f.role == gradients:
				return line, call, own, f.role == gradients
			case line.line > 0:
			case f.role == updates:
				return line, call, f, false
			case f.role == user:
				line = f
			default:
				call = f
				if f.role == library && own.line == 0 {
					own = f
				}
			}
		}
		if read = len(all); line.line > 0 || read < n || n == maxFrames {
			return line, call, own, false
		}
	}
}

// of returns the origin of an op with the given operands, and the flow into it.
func (l *lines) of(operands []*Value) (*ir.Origin, flow) {
	line, call, own, gradient := l.site()
	var all flow
	var layer, before *Value // the operands that determine the layer and the line
	pass := ir.Forward
	for _, v := range operands {
		all = max(all, v.flow)
		if v.origin == nil {
			continue
		}
		if v.origin.Pass != ir.Forward {
			pass = ir.Update
		}
		if v.origin.Layer != "" && (layer == nil || v.flow < layer.flow || v.flow == layer.flow && v.op > layer.op) {
			layer = v
		}
		if v.origin.Call != "" && !v.borrowed && (before == nil || v.flow > before.flow || v.flow == before.flow && v.op > before.op) {
			before = v
		}
	}
	made := ir.Origin{File: line.file, Line: line.line, Function: line.function, Call: call.function, Pass: pass}
	if pass == ir.Update && before != nil && before.origin.Layer != "" {
		layer = before // not shared values of the optimizer
	}
	if layer != nil {
		made.Layer = layer.origin.Layer
	}
	switch {
	case gradient:
		made.Pass = ir.Backward
		if line.line > 0 || l.adjoint == nil {
			break
		}
		made = *l.adjoint
		made.Pass = ir.Backward
	case line.line > 0:
	case before != nil: // a library continues the computation of the user's line
		made.File, made.Line, made.Function, made.Call = before.origin.File, before.origin.Line, before.origin.Function, own.function
	}
	if made.Line == 0 {
		made.File, made.Line, made.Function, made.Call = own.file, own.line, own.function, ""
		if own.role == updates {
			made.Pass = ir.Update
		}
	}
	return l.one(made), all
}

// one returns the shared pointer for equal origins.
func (l *lines) one(made ir.Origin) *ir.Origin {
	known, ok := l.known[made]
	if !ok {
		known = &made
		l.known[made] = known
	}
	return known
}

// flow describes the inputs that a value depends on.
type flow int

const (
	ofConstants flow = iota // constants only
	ofVariables             // variables too
	ofArguments             // arguments of the step too
)

// name sets the layer of the results that a call computed before it read its first variable.
func (l *lines) name(operands []*Value, origin *ir.Origin, made []*stablehlo.Statement, results []compute.Value) {
	at := *origin
	if at.Layer = ""; at != l.call.at || at.Call == "" || at.Pass != ir.Forward {
		l.call = call{at: at}
	}
	if l.call.named {
		return
	}
	for _, v := range operands {
		l.call.named = l.call.named || v.flow == ofVariables && v.origin.Layer != ""
	}
	if !l.call.named {
		l.call.made = append(l.call.made, made...)
		for _, v := range results {
			l.call.values = append(l.call.values, v.(*Value))
		}
		return
	}
	if len(l.call.values) > 0 {
		l.move(l.call.values[0].fn, l.call.made, origin)
	}
	for _, v := range l.call.values {
		v.origin = origin
	}
}

// parameter records that v is the next parameter of the entry function.
func (l *lines) parameter(name string, v *Value) {
	if l == nil {
		return
	}
	made := *v.origin
	made.Pass, v.flow = ir.Forward, ofArguments
	if strings.HasPrefix(name, "/") { // the path of a variable
		made.Layer, v.flow = path.Dir(name), ofVariables
	}
	v.origin = l.one(made)
	l.parameters = append(l.parameters, v.origin)
	v.parameter = len(l.parameters)
}

// source contains the statements that computed a value, and their operands.
type source struct {
	made     []*stablehlo.Statement
	operands []*Value
}

// reads assigns values of library code, such as a parameter or its conversion to half precision, to
// the first line of the user's code that reads them.
func (l *lines) reads(v *Value, by *ir.Origin) {
	switch {
	case by.Call == "" || v.origin == nil:
	case v.parameter > 0:
		if p := &l.parameters[v.parameter-1]; (*p).Call == "" {
			made := *by
			made.Layer, made.Pass = (*p).Layer, ir.Forward
			*p = l.one(made)
		}
	case v.source != nil:
		made := *by
		made.Layer, made.Pass = cmp.Or(v.origin.Layer, by.Layer), v.origin.Pass
		from := v.source
		v.origin, v.source, v.borrowed = l.one(made), nil, true
		l.move(v.fn, from.made, v.origin)
		for _, operand := range from.operands {
			l.reads(operand, by)
		}
	}
}

// move changes the origin of statements of a function, including the statements that [Function.IR]
// already returned.
func (l *lines) move(in *Function, made []*stablehlo.Statement, to *ir.Origin) {
	for in.parent != nil {
		in = in.parent
	}
	for _, s := range made {
		for _, v := range s.Outputs {
			if l.values[v] = to; in.taker == nil {
				continue
			}
			if taken := in.taker.values[v.String()[1:]]; taken != nil {
				taken.Origin = to
			}
		}
	}
}

// finish assigns values that no line of the user's code reads, such as the step count, to the line
// that started the trace.
func (l *lines) finish() {
	if l == nil || l.caller.Line == 0 {
		return
	}
	for _, v := range l.unassigned {
		l.reads(v, &l.caller)
	}
	for n, p := range l.parameters {
		if p.Call == "" {
			made := l.caller
			made.Layer, made.Pass = p.Layer, p.Pass
			l.parameters[n] = l.one(made)
		}
	}
}

// Differentiate records that the gradient of v is computed next. The ops of a gradient get the
// origin of v. If gomlx is true, all ops until the next call belong to that gradient, because GoMLX
// itself computes it. Otherwise user code may compute the gradient. Without Options.Origins
// Differentiate does nothing.
func Differentiate(v compute.Value, gomlx bool) {
	if w, ok := v.(*Value); ok && w.origin != nil {
		l := w.fn.builder.lines
		l.adjoint, l.gomlx = w.origin, gomlx
	}
}

// PassOn records that the op that is being added returns its operand, so that the result gets the
// origin of the operand.
func (f *Function) PassOn() {
	if l := f.builder.lines; l != nil {
		l.passes = true
	}
}
