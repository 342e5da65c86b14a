package screen

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// mlirBytecodeMagic starts MLIR bytecode.
const mlirBytecodeMagic = "ML\xefR"

// maxNesting bounds brackets within brackets: MLIR's parser and passes recurse on the thread's
// stack.
const maxNesting = 256

// maxCalls bounds calls within calls, for the same reason.
const maxCalls = 256

// Options say which compiler a program is for.
type Options struct {
	// Shardy says that the compiler reads shardings of Shardy, and not GSPMD's.
	Shardy bool
	// Host says that the program is for processors of the host, and TPU that it is for TPUs.
	Host, TPU bool
	// Replicas and Partitions count the copies of the program and the parts of each copy; 0 is 1.
	Replicas, Partitions int
}

// checker goes over the operations of a program.
type checker struct {
	Options
	code    string // "" for operations that are not from text
	aliases map[string]string
	sdy     bool
	gspmd   string
	// unclosed is that the text ends within brackets, which compilers refuse.
	unclosed bool

	// The functions, and the symbols that each names, to find recursion.
	function string
	order    []string
	defined  map[string]bool
	refs     map[string][]string
	called   []string // by custom calls

	shardings map[string]string  // of the values that @Sharding gave
	constants map[string][]int64 // of integer values, while they are few
	folds     map[string]bool    // the values that a compiler may come to know
	edits     []edit
	elements  []string // types of arrays that are aliases
	hidden    string   // starts the names of what is hidden

	// The manual shardings of GSPMD there are, those that its custom calls have, those of @Sharding
	// alone, and the changes back to full shapes.
	manual, manualCalls, manualShardings, fulls int
}

func newChecker(o Options) *checker {
	return &checker{
		Options: o, defined: map[string]bool{}, refs: map[string][]string{}, shardings: map[string]string{},
		constants: map[string][]int64{}, folds: map[string]bool{}, aliases: map[string]string{},
	}
}

// MLIR refuses a program that is known to crash compilers. Of bytecode it sees only which strings
// there are. The error tells what to write instead. The result is the program to compile. It is the
// one given, unless a compiler would end the process as it divides values that it takes for
// constants: then those values are hidden from the compiler.
func MLIR(code []byte, o Options) ([]byte, error) {
	f := newChecker(o)
	if bytes.HasPrefix(code, []byte(mlirBytecodeMagic)) {
		if err := f.scanBytecode(string(code)); err != nil {
			return nil, err
		}
		return code, f.finish()
	}
	f.code = string(code)
	if err := f.tokens(f.code); err != nil {
		return nil, err
	}
	top, aliases := read(f.code)
	f.aliases = aliases
	for _, name := range f.elements {
		if err := f.element(f.resolve(name), 0); err != nil {
			return nil, err
		}
	}
	for _, name := range sortedKeys(aliases) {
		if err := f.attributes(nil, []Attr{{Key: name, Value: aliases[name]}}); err != nil {
			return nil, err
		}
	}
	if err := f.region(top); err != nil {
		return nil, err
	}
	return applied(code, f.edits), f.finish()
}

// finish judges what only the whole program shows.
func (f *checker) finish() error {
	switch {
	case f.gspmd == "":
	case f.sdy:
		return codeError("it has both Shardy (sdy.) and the GSPMD custom call @%s, which crashes the compiler: use sdy.sharding_constraint and sdy.manual_computation instead", f.gspmd)
	case f.Shardy:
		return codeError("it has the GSPMD custom call @%s, and CompileOptions.Shardy is set, which crashes the compiler: use sdy.sharding_constraint and sdy.manual_computation instead, or leave Shardy unset", f.gspmd)
	}
	if f.manual > f.manualCalls || f.manualShardings > 0 && f.fulls == 0 {
		return codeError("it has the sharding \"{manual}\" elsewhere than on the custom calls @Sharding, @SPMDFullToShardShape and @SPMDShardToFullShape together, which crashes the compiler: leave it out, or use sdy.manual_computation")
	}
	if err := f.missing(); err != nil {
		return err
	}
	return f.recursion()
}

func codeError(format string, args ...any) error { return fmt.Errorf(format, args...) }

// tokens goes over the tokens of a text for what crashes compilers wherever it stands: depth, sizes
// of types and of meshes.
func (f *checker) tokens(s string) error {
	depth := 0
	for i := 0; i < len(s); {
		if i = skipSpace(s, i); i == len(s) {
			break
		}
		start := i
		switch c := s[i]; {
		case c == '"':
			_, n := scanString(s[i:])
			i += n
			if err := checkSubAxis(s[i:]); err != nil {
				return err
			}
		case c == '@':
			_, i = readSymbol(s, i)
		case c == '%' || c == '#' || c == '!' || c == '^':
			i = endOfSuffix(s, i+1)
			f.sdy = f.sdy || c != '%' && strings.HasPrefix(s[start+1:i], "sdy.")
			if f.Host && c == '!' && strings.HasPrefix(s[start+1:i], "quant.") {
				return codeError("line %d: it has the quantized type %s, and compilers for the host have none and end over some: use integers, and stablehlo.convert and stablehlo.multiply for their scales", f.line(start), s[start:i])
			}
		case isName(c):
			i = endOfName(s, i)
			word := s[start:i]
			f.sdy = f.sdy || strings.HasPrefix(word, "sdy.")
			if i == len(s) || s[i] != '<' {
				continue
			}
			if word == "tensor" {
				if err := checkDims(s[i+1:]); err != nil {
					return err
				}
			}
			if word == "array" {
				if err := f.element(s, skipSpace(s, i+1)); err != nil {
					return err
				}
			}
			// The dimensions before an element type are of its word: 2xcomplex.
			if f.TPU && f.Partitions > 1 && strings.HasSuffix(word, "complex") && strings.HasPrefix(s[skipSpace(s, i+1):], "f64") {
				return codeError("line %d: it has complex<f64>, which crashes the TPU compiler as it partitions the program: use complex<f32> (Complex64)", f.line(i))
			}
		case c == '(' || c == '[' || c == '{' || c == '<':
			if depth++; depth > maxNesting {
				return codeError("line %d: brackets are nested more than %d deep, which overflows the compiler's stack", f.line(i), maxNesting)
			}
			if strings.HasPrefix(s[i:], `<["`) {
				if err := checkMesh(s[i:max(endOfGroup(s, i), i)]); err != nil {
					return err
				}
			}
			i++
		case c == ')' || c == ']' || c == '}' || c == '>':
			if depth > 0 && (c != '>' || i == 0 || s[i-1] != '-') {
				depth--
			}
			i++
		default:
			i++
		}
	}
	f.unclosed = depth > 0
	return nil
}

// line is the number of the line of a place in the text.
func (f *checker) line(at int) int { return 1 + strings.Count(f.code[:at], "\n") }

// region goes over operations in order, and then over what is within each.
func (f *checker) region(r *Region) error {
	for _, op := range r.Ops {
		if err := f.operation(op); err != nil {
			return f.where(op, err)
		}
		for i, inner := range op.Regions {
			f.enter(op, i, inner)
			if err := f.region(inner); err != nil {
				return err
			}
		}
		if op.Name == "func.func" {
			f.function = ""
		}
	}
	return nil
}

// where says of an error at which operation it is.
func (f *checker) where(op *Operation, err error) error {
	name := op.Name
	if len(op.Results) > 0 {
		name = op.Results[0] + " = " + name
	}
	if op.Symbol != "" {
		name += " @" + op.Symbol
	}
	if f.code != "" {
		return codeError("line %d, %s: %w", f.line(op.at), name, err)
	}
	return codeError("%s: %w", name, err)
}

// operation looks at one operation.
func (f *checker) operation(op *Operation) error {
	dialect, short := op.dialect()
	f.sdy = f.sdy || dialect == "sdy"
	if err := f.expandTypes(op); err != nil {
		return err
	}
	for _, r := range op.Results {
		delete(f.shardings, r)
		delete(f.constants, r)
	}
	for _, list := range [][]Attr{op.Attrs, op.Borders} {
		if err := f.attributes(op, list); err != nil {
			return err
		}
	}
	if dialect == "" {
		return nil
	}
	if short != "func" {
		for _, a := range op.Attrs {
			if err := f.tiled(a, op.Outs...); err != nil {
				return err
			}
		}
	}
	if f.function != "" && short != "custom_call" {
		f.refs[f.function] = append(f.refs[f.function], op.symbols()...)
	}
	if f.Host {
		f.fold(op, short)
	}
	switch short {
	case "infeed", "outfeed":
		return codeError("it waits for ever, for there is no infeed here: use arguments and results")
	case "func":
		return f.header(op)
	case "constant":
		f.constant(op)
	case "broadcast_in_dim":
		if of, known := f.constants[op.operand(0)]; known {
			f.constants[op.result()] = of
		}
	case "custom_call":
		return f.custom(op)
	case "collective_permute":
		return f.checkPermute(op)
	case "convolution", "dynamic_conv":
		return f.checkConvolution(op)
	case "pad", "dynamic_pad", "reduce_window":
		return f.checkPadding(short, op)
	}
	if !f.Host {
		return nil
	}
	switch short {
	case "sort":
		return f.checkSort(op)
	case "fft":
		return f.checkFFT(op)
	case "compare":
		return f.checkCompare(op)
	case "divide", "remainder", "broadcast_divide", "broadcast_remainder":
		return f.checkDivision(op)
	}
	return nil
}

func (op *Operation) operand(i int) string {
	if i < len(op.Operands) {
		return op.Operands[i]
	}
	return ""
}

func (op *Operation) result() string {
	if len(op.Results) > 0 {
		return op.Results[0]
	}
	return ""
}

// typed refuses an operation that is to be read by its types, and has none.
func (op *Operation) typed() error {
	if len(op.Ins) == 0 {
		return codeError("it is without a type")
	}
	return nil
}

// resolve is what an attribute or a type is, where its text is an alias.
func (f *checker) resolve(text string) string {
	for range 8 {
		if text == "" || text[0] != '#' && text[0] != '!' {
			break
		}
		as, ok := f.aliases[text]
		if !ok {
			break
		}
		text = as
	}
	return text
}

// custom looks at a custom call.
func (f *checker) custom(op *Operation) error {
	target := op.target()
	if slices.Contains(gspmdCalls, target) {
		f.gspmd = target
		if text, _ := f.text(op, "mhlo.sharding"); strings.Contains(text, "manual") {
			f.manualCalls++
			if target == "Sharding" {
				f.manualShardings++
			}
		}
		if target == shardToFull {
			f.fulls++
		}
	}
	if target == "Sharding" && len(op.Results) > 0 {
		f.shardings[op.result()], _ = f.text(op, "mhlo.sharding")
	}
	f.called = append(f.called, symbolsIn(f.resolve(op.get("called_computations")))...)
	return f.customCall(op)
}

// text is the value of a string attribute, aliases followed.
func (f *checker) text(op *Operation, key string) (string, bool) {
	v, ok := op.has(key)
	if v = f.resolve(v); !ok || !strings.HasPrefix(v, `"`) {
		return "", false
	}
	s, _ := scanString(v)
	return s, true
}

// target is the function of a custom call.
func (op *Operation) target() string {
	if op.Symbol != "" {
		return op.Symbol
	}
	target, _ := op.text("call_target_name")
	return target
}

// constant remembers a short list of integers.
func (f *checker) constant(op *Operation) {
	v := f.resolve(op.get("value"))
	if len(v) > 256 || !strings.HasPrefix(v, "dense<") || len(op.Outs) != 1 || !isInteger(op.Outs[0]) {
		return
	}
	f.constants[op.result()] = integersIn(v)
}

// isInteger tells whether a type is a tensor of integers.
func isInteger(t string) bool {
	inside, ok := strings.CutPrefix(t, "tensor<")
	if !ok {
		return false
	}
	inside, _, _ = strings.Cut(strings.TrimSuffix(inside, ">"), ",")
	element := strings.TrimSpace(inside[strings.LastIndexByte(inside, 'x')+1:])
	element = strings.TrimPrefix(element, "u")
	return len(element) > 1 && element[0] == 'i' && element[1] >= '0' && element[1] <= '9'
}
