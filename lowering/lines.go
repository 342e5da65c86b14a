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

// GoMLX adds each op while the user's code is on the stack, so the stack contains the user's line
// of the op. Gradients are an exception: GoMLX computes them node by node, and calls
// [BeginGradient] with each node. The layer of an op is the scope of the variables that it depends
// on.

// The numbers of stack frames to read: fewFrames first, which is fast, then maxFrames if those
// contain no user code.
const fewFrames, maxFrames = 12, 64

// originTracker records the origin of each op of a computation, which is the line of the user's
// code that added the op.
type originTracker struct {
	pcs            [maxFrames]uintptr
	frames         map[uintptr]frame
	interned       map[ir.Origin]*ir.Origin
	values         map[*stablehlo.Value]*ir.Origin
	unassigned     []*Value     // values of library code without a known line of the user's code
	caller         ir.Origin    // the user's line that started the trace
	adjoint        *ir.Origin   // of the node whose gradient is being computed
	gomlxGradient  bool         // GoMLX computes that gradient without calls to user code
	parameters     []*ir.Origin // of the entry function
	ops            int
	inOp           bool // inside an op, which may add other ops
	returnsOperand bool // the current op returns its operand
	call           userCall
}

// userCall contains the values that one function call in the user's code computed. The layer of
// these values is the scope of the variables that the call reads. It also applies to the ops that
// were added before the first variable was read.
type userCall struct {
	at         ir.Origin // without the layer
	hasLayer   bool      // a variable was read
	statements []*stablehlo.Statement
	values     []*Value
}

func newOriginTracker() *originTracker {
	l := &originTracker{frames: map[uintptr]frame{}, interned: map[ir.Origin]*ir.Origin{},
		values: map[*stablehlo.Value]*ir.Origin{}}
	pcs := make([]uintptr, 256)
	for _, pc := range pcs[:runtime.Callers(2, pcs)] {
		f := l.frameAt(pc)
		if f.role == userCode {
			l.caller.File, l.caller.Line, l.caller.Function = f.file, f.line, f.function
			break
		}
		l.caller.Call = f.function
	}
	return l
}

// begin is called before an op is added. After the op was added, the caller must call the returned
// function, which sets the origin of the op's statements and results. begin returns nil for an op
// that is added as a part of another op, because it has the origin of the other op.
func (l *originTracker) begin(operands []*Value) func(made []*stablehlo.Statement, results []compute.Value) {
	if l == nil || l.inOp {
		return nil
	}
	origin, flow := l.opOrigin(operands)
	l.inOp, l.returnsOperand = true, false
	return func(made []*stablehlo.Statement, results []compute.Value) {
		if l.returnsOperand && len(operands) > 0 && operands[0].origin != nil {
			origin = operands[0].origin
		}
		defer l.assignLayer(operands, origin, made, results)
		for _, v := range operands {
			l.assignOrigin(v, origin)
		}
		for _, s := range made {
			for _, v := range s.Outputs {
				l.values[v] = origin
			}
		}
		for _, v := range results {
			v := v.(*Value)
			v.origin, v.dependence, v.op = origin, flow, l.ops
			if origin.Call == "" {
				v.producer = &producer{made, operands}
				l.unassigned = append(l.unassigned, v)
			}
		}
		l.ops++
	}
}

type frame struct {
	role
	file, function string
	line           int
}

type role int

const (
	graphCode     role = iota // adds ops for its caller
	libraryCode               // calls ops
	gradientCode              // walks back through the nodes
	outerCode                 // started the trace: outer frames belong to no op
	optimizerCode             // updates all variables: an op belongs to a variable, not to the calling line
	userCode
)

// roles maps prefixes of library functions to their roles. Other library functions have the role
// libraryCode.
var roles = []struct {
	prefix string
	role   role
}{
	{"github.com/gomlx/gomlx/core/graph.Gradient", gradientCode},
	{"github.com/gomlx/gomlx/core/graph.(*Exec)", outerCode},
	{"github.com/gomlx/gomlx/ml/train/optimizer.", optimizerCode},
	{"github.com/gomlx/gomlx/core/", graphCode},
	{"github.com/gomlx/gomlx/ml/model.", graphCode},
	{"github.com/gomlx/compute", graphCode},
	{"github.com/tpustrategy/tpustrategy/lowering.", graphCode},
	{"github.com/tpustrategy/tpustrategy/lowering/ir.", graphCode},
	{"github.com/tpustrategy/tpustrategy/lowering/ragged.", graphCode},
	{"github.com/tpustrategy/tpustrategy/lowering/spmd.", graphCode},
	{"github.com/tpustrategy/tpustrategy/internal/engine/", libraryCode},
	{"github.com/tpustrategy/tpustrategy/internal/", graphCode},
	{"github.com/tpustrategy/tpustrategy/strategy.(*Function).lower", outerCode},
	{"runtime.", graphCode},
	{"reflect.", graphCode},
}

func (l *originTracker) frameAt(pc uintptr) frame {
	if f, known := l.frames[pc]; known {
		return f
	}
	at, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	f := frame{role: userCode, file: usercode.File(at), function: usercode.Function(at), line: at.Line}
	if usercode.IsLibrary(at) {
		f.role = libraryCode
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

// callSite reads the stack of the current op. line is the user's line, call is the function that
// the line called, and own is the library function that adds the op. gradient reports whether the
// op belongs to a gradient. A frame that is not found is zero.
func (l *originTracker) callSite() (line, call, own frame, gradient bool) {
	if l.gomlxGradient {
		return line, call, own, true
	}
	for read, n := 0, fewFrames; ; n = maxFrames {
		all := l.pcs[:runtime.Callers(4, l.pcs[:n])]
		for _, pc := range all[read:] {
			f := l.frameAt(pc)
			switch {
			case f.role == outerCode, f.role == gradientCode:
				return line, call, own, f.role == gradientCode
			case line.line > 0:
			case f.role == optimizerCode:
				return line, call, f, false
			case f.role == userCode:
				line = f
			default:
				call = f
				if f.role == libraryCode && own.line == 0 {
					own = f
				}
			}
		}
		if read = len(all); line.line > 0 || read < n || n == maxFrames {
			return line, call, own, false
		}
	}
}

// opOrigin returns the origin of an op with the given operands, and the kind of inputs that the op
// depends on.
func (l *originTracker) opOrigin(operands []*Value) (*ir.Origin, dependence) {
	line, call, own, gradient := l.callSite()
	var all dependence
	var layer, before *Value // the operands that determine the layer and the line
	pass := ir.Forward
	for _, v := range operands {
		all = max(all, v.dependence)
		if v.origin == nil {
			continue
		}
		if v.origin.Pass != ir.Forward {
			pass = ir.Update
		}
		if v.origin.Layer != "" && (layer == nil || v.dependence < layer.dependence ||
			v.dependence == layer.dependence && v.op > layer.op) {
			layer = v
		}
		if v.origin.Call != "" && !v.hasReaderOrigin && (before == nil || v.dependence > before.dependence ||
			v.dependence == before.dependence && v.op > before.op) {
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
		made.File, made.Line, made.Function, made.Call = before.origin.File, before.origin.Line, before.origin.Function,
			own.function
	}
	if made.Line == 0 {
		made.File, made.Line, made.Function, made.Call = own.file, own.line, own.function, ""
		if own.role == optimizerCode {
			made.Pass = ir.Update
		}
	}
	return l.intern(made), all
}

// intern returns the same pointer for equal origins.
func (l *originTracker) intern(made ir.Origin) *ir.Origin {
	known, ok := l.interned[made]
	if !ok {
		known = &made
		l.interned[made] = known
	}
	return known
}

// dependence classifies a value by the inputs that it depends on: only constants, variables, or
// arguments of the step.
type dependence int

const (
	onConstants dependence = iota // constants only
	onVariables                   // variables too
	onArguments                   // arguments of the step too
)

// assignLayer sets the layer of the values that a call in the user's code computed before it read
// its first variable.
func (l *originTracker) assignLayer(operands []*Value, origin *ir.Origin, made []*stablehlo.Statement,
	results []compute.Value) {
	at := *origin
	if at.Layer = ""; at != l.call.at || at.Call == "" || at.Pass != ir.Forward {
		l.call = userCall{at: at}
	}
	if l.call.hasLayer {
		return
	}
	for _, v := range operands {
		l.call.hasLayer = l.call.hasLayer || v.dependence == onVariables && v.origin.Layer != ""
	}
	if !l.call.hasLayer {
		l.call.statements = append(l.call.statements, made...)
		for _, v := range results {
			l.call.values = append(l.call.values, v.(*Value))
		}
		return
	}
	if len(l.call.values) > 0 {
		l.setOrigin(l.call.values[0].fn, l.call.statements, origin)
	}
	for _, v := range l.call.values {
		v.origin = origin
	}
}

func (l *originTracker) addParameter(name string, v *Value) {
	if l == nil {
		return
	}
	made := *v.origin
	made.Pass, v.dependence = ir.Forward, onArguments
	if strings.HasPrefix(name, "/") { // the path of a variable
		made.Layer, v.dependence = path.Dir(name), onVariables
	}
	v.origin = l.intern(made)
	l.parameters = append(l.parameters, v.origin)
	v.parameter = len(l.parameters)
}

type producer struct {
	statements []*stablehlo.Statement
	operands   []*Value
}

// assignOrigin assigns a value of library code, such as a converted parameter, to the first line of
// the user's code that reads the value.
func (l *originTracker) assignOrigin(v *Value, by *ir.Origin) {
	switch {
	case by.Call == "" || v.origin == nil:
	case v.parameter > 0:
		if p := &l.parameters[v.parameter-1]; (*p).Call == "" {
			made := *by
			made.Layer, made.Pass = (*p).Layer, ir.Forward
			*p = l.intern(made)
		}
	case v.producer != nil:
		made := *by
		made.Layer, made.Pass = cmp.Or(v.origin.Layer, by.Layer), v.origin.Pass
		from := v.producer
		v.origin, v.producer, v.hasReaderOrigin = l.intern(made), nil, true
		l.setOrigin(v.fn, from.statements, v.origin)
		for _, operand := range from.operands {
			l.assignOrigin(operand, by)
		}
	}
}

// setOrigin changes the origin of statements, including the statements in the result of
// [Function.IR].
func (l *originTracker) setOrigin(in *Function, made []*stablehlo.Statement, to *ir.Origin) {
	for in.parent != nil {
		in = in.parent
	}
	for _, s := range made {
		for _, v := range s.Outputs {
			if l.values[v] = to; in.converter == nil {
				continue
			}
			if taken := in.converter.values[v.String()[1:]]; taken != nil {
				taken.Origin = to
			}
		}
	}
}

// finish sets the origin of the values that no line of the user's code reads, such as the step
// count, to the line that started the trace.
func (l *originTracker) finish() {
	if l == nil || l.caller.Line == 0 {
		return
	}
	for _, v := range l.unassigned {
		l.assignOrigin(v, &l.caller)
	}
	for n, p := range l.parameters {
		if p.Call == "" {
			made := l.caller
			made.Layer, made.Pass = p.Layer, p.Pass
			l.parameters[n] = l.intern(made)
		}
	}
}

// BeginGradient records that the gradient of v is computed next, so that the ops of the gradient
// have the origin of v. If gomlx is true, GoMLX computes the gradient, and all ops until the next
// call belong to it. Otherwise user code may compute the gradient. Without Options.Origins,
// BeginGradient does nothing.
func BeginGradient(v compute.Value, gomlx bool) {
	if w, ok := v.(*Value); ok && w.origin != nil {
		l := w.fn.builder.origins
		l.adjoint, l.gomlxGradient = w.origin, gomlx
	}
}

// InheritOrigin records that the current op returns its operand unchanged. The result of the op
// then has the operand's origin.
func (f *Function) InheritOrigin() {
	if l := f.builder.origins; l != nil {
		l.returnsOperand = true
	}
}
