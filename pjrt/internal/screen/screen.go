package screen

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// mlirBytecodeMagic starts MLIR bytecode.
const mlirBytecodeMagic = "ML\xefR"

// maxNesting bounds brackets within brackets: MLIR's parser and passes recurse
// on the thread's stack.
const maxNesting = 256

// maxCalls bounds calls within calls, for the same reason.
const maxCalls = 256

// Options say who is to compile a program.
type Options struct {
	// Shardy is that shardings of Shardy are read, and not GSPMD's.
	Shardy bool
	// Host is that the program is for processors of the host, TPU that it is for TPUs.
	Host, TPU bool
	// Replicas and Partitions are the copies of the program and their parts; 0 is 1.
	Replicas, Partitions int
}

// moduleFacts is what one pass over a module's text gathers.
type moduleFacts struct {
	Options
	sdy   bool
	gspmd string

	// The symbols that each function names, to find recursion.
	function string
	order    []string
	defined  map[string]bool
	refs     map[string][]string
	called   []string // by custom calls

	shardings map[string]string  // of the values that @Sharding gave
	constants map[string][]int64 // of integer values, while they are few
	bounded   map[string]bool    // type aliases with a bounded dimension
	unread    int                // bytes of operations that could not be read

	// The manual shardings of GSPMD there are, those that its custom calls have, those
	// of @Sharding alone, and the changes back to full shapes.
	manual, manualCalls, manualShardings, fulls int
}

// MLIR says what of a program is known to crash compilers. In bytecode it sees only
// which strings there are. The error tells what to write instead.
func MLIR(code []byte, o Options) error {
	f := moduleFacts{Options: o, defined: map[string]bool{}, refs: map[string][]string{}, shardings: map[string]string{}, constants: map[string][]int64{}, bounded: map[string]bool{}}
	scan := f.scan
	if bytes.HasPrefix(code, []byte(mlirBytecodeMagic)) {
		scan = f.scanBytecode
	}
	if err := scan(string(code)); err != nil {
		return err
	}
	switch {
	case f.gspmd == "":
	case f.sdy:
		return codeError("it has both Shardy (sdy.) and the GSPMD custom call @%s, which crashes the compiler: use sdy.sharding_constraint and sdy.manual_computation instead", f.gspmd)
	case o.Shardy:
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

// scan goes over the tokens of MLIR text.
func (f *moduleFacts) scan(s string) error {
	depth := 0
	before, last := "", "" // the two tokens before this one, without punctuation but "="
	end := byte(0)         // the last byte of what came before, without space
	for i := 0; i < len(s); {
		if i = skipSpace(s, i); i == len(s) {
			break
		}
		start := i
		switch c := s[i]; {
		case c == '"':
			text, n := scanString(s[i:])
			i += n
			if err := checkShardingsIn(text); err != nil {
				return err
			}
			if err := checkSubAxis(s[i:]); err != nil {
				return err
			}
			// A location can be "name"(inner) too: in brackets, or after "at".
			if at := skipSpace(s, i); at < len(s) && s[at] == '(' && !strings.ContainsRune("([,", rune(end)) && last != "at" {
				if err := f.operation(text, s[i:], before, last); err != nil {
					return err
				}
			}
			before, last = last, "\""+text
		case c == '@':
			var name string
			name, i = readSymbol(s, i)
			if last == "func.func" || before == "func.func" && (last == "private" || last == "public" || last == "nested") {
				if err := f.header(name, s[i:]); err != nil {
					return err
				}
			} else if f.function != "" && !strings.HasSuffix(last, "custom_call") {
				f.refs[f.function] = append(f.refs[f.function], name)
			}
			before, last = last, s[start:i]
		case c == '%' || c == '#' || c == '!':
			i = endOfSuffix(s, i+1)
			if strings.HasPrefix(s[start+1:i], "sdy.") && c != '%' {
				f.sdy = true
			}
			if word := s[start:i]; (word == "#stablehlo.conv" || word == "#mhlo.conv") && i < len(s) && s[i] == '<' {
				if err := checkDimNumbers(s[i:max(endOfGroup(s, i), i)]); err != nil {
					return err
				}
			}
			if at := skipSpace(s, i); c == '!' && at < len(s) && s[at] == '=' {
				types, _ := readTypes(s, at+1)
				f.bounded[s[start:i]] = f.hasBounds(strings.Join(types, ""))
			}
			before, last = last, s[start:i]
		case isName(c):
			i = endOfName(s, i)
			word := s[start:i]
			if strings.HasPrefix(word, "sdy.") {
				f.sdy = true
			}
			if word == "tensor" && i < len(s) && s[i] == '<' {
				if err := checkDims(s[i+1:]); err != nil {
					return err
				}
			}
			// The dimensions before an element type are of its word: 2xcomplex.
			if f.TPU && f.Partitions > 1 && strings.HasSuffix(word, "complex") && strings.HasPrefix(s[i:], "<") && strings.HasPrefix(s[skipSpace(s, i+1):], "f64") {
				return codeError("it has complex<f64> at byte %d, which crashes the TPU compiler as it partitions the program: use complex<f32> (Complex64)", i-len("complex"))
			}
			if at := skipSpace(s, i); at == len(s) || s[at] != '=' {
				if err := f.operation(word, s[i:], before, last); err != nil {
					return err
				}
			}
			before, last = last, word
		case c == '(' || c == '[' || c == '{' || c == '<':
			if depth++; depth > maxNesting {
				return codeError("brackets are nested more than %d deep at byte %d, which overflows the compiler's stack", maxNesting, i)
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
		case c == '=':
			i++
			if err := f.checkKey(strings.TrimPrefix(last, "\""), s[skipSpace(s, i):]); err != nil {
				return err
			}
			before, last = last, "="
		default:
			i++
		}
		end = s[i-1]
		if f.unread > 4*len(s)+1<<16 {
			return codeError("it has too many operations without a type")
		}
	}
	return nil
}

// checkKey looks at an attribute's name before its value.
func (f *moduleFacts) checkKey(key, value string) error {
	switch {
	case key == aliasKey:
		return errAliasKey()
	case key == autoKey && strings.HasPrefix(value, "true"):
		return errAutoKey("= true ")
	case strings.HasPrefix(key, exportPrefix):
		return errExportKey(key)
	case strings.HasPrefix(key, layoutPrefix):
		return errLayoutKey(key)
	case key == "dim_numbers" && strings.HasPrefix(value, "["):
		return checkDimNumbers(value[:endOfDimNumbers(value)])
	case key == "lhs_dilate" || key == "lhs_dilation":
		return checkDilation(value)
	case key == "mhlo.sharding" && strings.HasPrefix(value, `"`):
		text, _ := scanString(value)
		if strings.Contains(text, "manual") {
			f.manual++
		}
		return checkSharding(text)
	}
	return nil
}

// The module attributes that crash compilers.
const (
	aliasKey = "mhlo.input_output_alias"
	autoKey  = "mhlo.use_auto_spmd_partitioning"
	// layoutPrefix starts the names of layouts and tiles of main's parameters and result.
	layoutPrefix = "mhlo.xla_entry_computation_"
)

func errAliasKey() error {
	return codeError("it has the module attribute %s, which crashes the compiler: put tf.aliasing_output or jax.buffer_donor on the arguments of main", aliasKey)
}

func errAutoKey(value string) error {
	return codeError("it has the module attribute %s %swhich aborts the compiler: leave it out, and give shardings", autoKey, value)
}

func errLayoutKey(key string) error {
	return codeError("it has the module attribute %s, which crashes the compiler if it does not fit: leave it out, for buffers have the device's own layout", key)
}

func errExportKey(key string) error {
	return codeError("it has %s, the form in which compilers hand shardings on, which crashes them if malformed: use sdy.mesh, sdy.sharding and sdy.manual_computation", key)
}

// operation takes the name of an operation and the text after it. A word that
// is none has no such text.
func (f *moduleFacts) operation(name, rest, before, last string) error {
	dialect, short := "", name
	if at := strings.LastIndexByte(name, '.'); at >= 0 {
		dialect, short = name[:at], name[at+1:]
	}
	f.sdy = f.sdy || dialect == "sdy"
	result := ""
	if last == "=" && strings.HasPrefix(before, "%") {
		result = before
		delete(f.shardings, result)
		delete(f.constants, result)
	}
	switch {
	case name == "func.func" || short == "custom_call":
	case dialect == "":
		return nil
	case short == "infeed" || short == "outfeed":
		return codeError("it has %s, which waits for ever, for there is no infeed here: use arguments and results", name)
	case short == "constant":
		if result != "" {
			f.constant(result, rest)
		}
		return nil
	case short == "pad" || short == "dynamic_pad" || short == "reduce_window" || short == "collective_permute":
	case f.Host && (short == "divide" || short == "remainder" || short == "broadcast_in_dim"):
		op, _ := readOperation(rest)
		if short != "broadcast_in_dim" {
			return f.checkDivision(name, &op)
		}
		if of, known := f.constants[append(op.operands, "")[0]]; known && result != "" {
			f.constants[result] = of
		}
		return nil
	case f.Host && (short == "sort" || short == "fft"):
	default:
		return nil
	}
	if name == "func.func" && !strings.HasPrefix(rest[skipSpace(rest, 0):], "(") {
		return nil // its name comes next
	}
	op, ok := readOperation(rest)
	if !ok {
		f.unread += op.n
		return nil
	}
	switch short {
	case "func":
		return f.genericFunction(&op)
	case "custom_call":
		target := op.target
		if target == "" {
			target, _ = op.text("call_target_name")
		}
		if slices.Contains(gspmdCalls, target) {
			f.gspmd = target
			if text, _ := op.text("mhlo.sharding"); strings.Contains(text, "manual") {
				f.manualCalls++
				if target == "Sharding" {
					f.manualShardings++
				}
			}
			if target == shardToFull {
				f.fulls++
			}
		}
		if target == "Sharding" && result != "" {
			f.shardings[result], _ = op.text("mhlo.sharding")
		}
		f.symbols(op.attrs["called_computations"])
		return customCall(&op, f.shardings)
	case "collective_permute":
		return f.checkPermute(&op)
	case "sort":
		return checkSort(&op)
	case "fft":
		return checkFFT(&op)
	}
	return checkPadding(short, &op, f.constants)
}

// constant remembers a short list of integers.
func (f *moduleFacts) constant(result, rest string) {
	rest = rest[:min(len(rest), 256)]
	at := strings.Index(rest, "dense<")
	if at < 0 || strings.ContainsAny(rest[:at], "%:") {
		return
	}
	inside := rest[at+len("dense<"):]
	if end := strings.IndexByte(inside, '>'); end >= 0 && integerType.MatchString(inside[end+1:]) {
		f.constants[result] = integersIn(inside[:end])
	}
}

// header takes a function's name and the text after it, in custom form.
func (f *moduleFacts) header(name, rest string) error {
	f.define(name)
	i := skipSpace(rest, 0)
	if i == len(rest) || rest[i] != '(' {
		return nil
	}
	end := endOfGroup(rest, i)
	if end == 0 {
		f.unread += len(rest)
		return nil
	}
	types := splitList(rest[i+1 : end-1])
	if i = skipSpace(rest, end); strings.HasPrefix(rest[i:], "->") {
		results, end := readTypes(rest, i+2)
		if end == 0 {
			f.unread += len(rest)
			return nil
		}
		types, i = append(types, results...), skipSpace(rest, end)
	}
	if strings.HasPrefix(rest[i:], "attributes") {
		if i = skipSpace(rest, i+len("attributes")); i < len(rest) && rest[i] == '{' {
			if end = endOfGroup(rest, i); end == 0 {
				f.unread += len(rest)
				return nil
			}
			i = skipSpace(rest, end)
		}
	}
	return f.signature(name, types, i < len(rest) && rest[i] == '{')
}

// genericFunction takes a "func.func" operation.
func (f *moduleFacts) genericFunction(op *operation) error {
	name, ok := op.text("sym_name")
	if !ok {
		return nil
	}
	f.define(name)
	body := false
	for _, region := range op.regions {
		body = body || strings.HasPrefix(region, "{") && skipSpace(region, 1) < len(region)-1
	}
	return f.signature(name, []string{op.attrs["function_type"]}, body)
}

// signature looks at what a function takes and gives.
func (f *moduleFacts) signature(name string, types []string, body bool) error {
	if !body {
		return codeError("function @%s has no body, which crashes the compiler: give it one, or use stablehlo.custom_call", name)
	}
	if name != "main" {
		return nil
	}
	for _, t := range types {
		if f.hasBounds(t) {
			return codeError("main has the bounded dynamic type %s, and buffers have no dynamic size: pad to a static shape and pass the size as an argument of its own", t)
		}
	}
	return nil
}

// hasBounds tells whether a tensor<?x..., encoding> is in a type's text.
func (f *moduleFacts) hasBounds(t string) bool {
	for i := 0; i < len(t); {
		switch start := i; {
		case t[i] == '"':
			_, n := scanString(t[i:])
			i += n
		case t[i] == '!':
			i = endOfSuffix(t, i+1)
			if f.bounded[t[start:i]] {
				return true
			}
		case isName(t[i]):
			i = endOfName(t, i)
			if t[start:i] != "tensor" || i == len(t) || t[i] != '<' {
				continue
			}
			end := endOfGroup(t, i)
			if end == 0 {
				return false
			}
			parts := splitList(t[i+1 : end-1])
			if len(parts) > 1 && strings.Contains(parts[0], "?") {
				return true
			}
			i = end
		default:
			i++
		}
	}
	return false
}

func (f *moduleFacts) define(name string) {
	f.function = name
	clear(f.constants)
	clear(f.shardings)
	f.order = append(f.order, name)
	f.defined[name] = true
}
