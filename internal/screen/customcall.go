package screen

import (
	"slices"
	"strings"
)

// This file knows the custom calls that compilers look into, and with which operands, results and
// attributes they crash over them. A target that is not here is the compiler's to refuse, which it
// does with an error.

// gspmdCalls are the custom calls that GSPMD reads as shardings.
var gspmdCalls = []string{"Sharding", fullToShard, shardToFull}

const (
	fullToShard = "SPMDFullToShardShape"
	shardToFull = "SPMDShardToFullShape"
)

// mhloCalls are the operations that a compiler makes of a custom call @mhlo.x with its attributes
// in mhlo.attributes.
var mhloCalls = []string{"acos", "acosh", "asin", "asinh", "atanh", "cosh", "erf", "sinh", "tan", "topk"}

// mhloCrashes are further names that compilers look for, to know them in bytecode, where other
// strings start with "mhlo." too.
var mhloCrashes = []string{"atan", "erf_inv", "ragged_all_to_all", "ragged_dot", "scan", "square", "top_k"}

// exportPrefix starts the names that Shardy gives to what it exports.
const exportPrefix = "xla.sdy."

// internalCall says why nobody but a compiler may write a custom call; "" if that is not so.
func internalCall(target string) string {
	switch {
	case target == "SliceToDynamic":
		return "use stablehlo.set_dimension_size"
	case strings.HasPrefix(target, "__onednn$"):
		return "use stablehlo.dot_general, stablehlo.convolution and the like, which the compiler turns into it"
	case strings.HasPrefix(target, exportPrefix):
		return "use sdy.sharding, sdy.sharding_constraint and sdy.manual_computation"
	}
	return ""
}

// customCall looks at one custom call.
func (f *checker) customCall(op *Operation) error {
	target := op.target()
	if instead := internalCall(target); instead != "" {
		return codeError("custom call @%s is the compiler's own and crashes it elsewhere: %s", target, instead)
	}
	if name, ok := strings.CutPrefix(target, "mhlo."); ok {
		return f.mhloCall(name, op)
	}
	switch target {
	case "Sharding":
		if _, ok := f.text(op, "mhlo.sharding"); !ok {
			return codeError("custom call @Sharding has no string mhlo.sharding, which crashes the compiler: write {mhlo.sharding = \"{devices=[2]<=[2]}\"}, or use sdy.sharding_constraint")
		}
	case fullToShard, shardToFull:
		return f.manualCall(target, op)
	case "TopK":
		results := op.Outs
		if len(results) == 1 {
			if inside, ok := strings.CutPrefix(results[0], "tuple<"); ok {
				results = splitList(strings.TrimSuffix(inside, ">"))
			}
		}
		if len(op.Ins) == 0 || len(results) < 2 {
			return codeError("custom call @TopK has %d operands and %d results, which crashes the compiler: it takes the values and gives values and indices; use chlo.top_k", len(op.Ins), len(results))
		}
		if !isSelection(op.Ins[0], results[0], results[1]) {
			return codeError("custom call @TopK has the type %s, and writes past the end of what it gives: its results are as its operand, but for a last dimension that is no longer; use chlo.top_k", op.signature())
		}
		if f.TPU && len(f.resolve(op.get("called_computations"))) <= len("[]") {
			return codeError("custom call @TopK has no comparator among its called_computations, which crashes the TPU compiler: use chlo.top_k")
		}
	case "Eigh", "Qr":
		if len(op.Ins) != 1 || len(op.Outs) != 2 || !isDecomposition(op.Ins[0], op.Outs[0], op.Outs[1]) {
			return codeError("custom call @%s has the type %s, which crashes the compiler: it takes one tensor of rank 2 or more, and gives one of its shape and one of its batch and its smaller side", target, op.signature())
		}
	case "ProductOfElementaryHouseholderReflectors":
		if len(op.Ins) != 2 || len(op.Outs) != 1 || !areReflectors(op.Ins[0], op.Ins[1]) {
			return codeError("custom call @%s has the type %s, which crashes the compiler: it takes a tensor of rank 2 or more and the scales of its reflectors, and gives one tensor", target, op.signature())
		}
	}
	return nil
}

func (op *Operation) signature() string {
	return "(" + strings.Join(op.Ins, ", ") + ") -> (" + strings.Join(op.Outs, ", ") + ")"
}

// staticDims are the dimensions of a tensor of static sizes.
func staticDims(t string) (dims []int64, ok bool) {
	dims, ok = tensorDims(t)
	return dims, ok && !slices.Contains(dims, -1)
}

// isDecomposition tells whether the results of a decomposition fit its operand.
func isDecomposition(in, out, diagonal string) bool {
	dims, ok := staticDims(in)
	same, alsoOK := staticDims(out)
	short, allOK := staticDims(diagonal)
	n := len(dims)
	return ok && alsoOK && allOK && n >= 2 && slices.Equal(dims, same) &&
		slices.Equal(short, append(slices.Clone(dims[:n-2]), min(dims[n-2], dims[n-1])))
}

// areReflectors tells whether there is a scale for each column of a matrix.
func areReflectors(matrix, scales string) bool {
	dims, ok := staticDims(matrix)
	s, alsoOK := staticDims(scales)
	return ok && alsoOK && len(dims) >= 2 && len(s) == len(dims)-1
}

// isSelection tells whether results hold a part of the last dimension of values.
func isSelection(values, selected, indices string) bool {
	dims, ok := staticDims(values)
	out, alsoOK := staticDims(selected)
	where, allOK := staticDims(indices)
	n := len(dims) - 1
	return ok && alsoOK && allOK && n >= 0 && slices.Equal(out, where) && len(out) == len(dims) &&
		slices.Equal(out[:n], dims[:n]) && out[n] <= dims[n]
}

// mhloCall looks at a custom call @mhlo.name.
func (f *checker) mhloCall(name string, op *Operation) error {
	if !slices.Contains(mhloCalls, name) {
		return codeError("custom call @mhlo.%s is no operation that compilers know, which crashes them: write the operation of stablehlo or chlo itself", name)
	}
	attributes := f.resolve(op.get("mhlo.attributes"))
	if !strings.HasPrefix(attributes, "{") {
		return codeError("custom call @mhlo.%s has no dictionary mhlo.attributes, which crashes the compiler: write chlo.%s itself", name, strings.Replace(name, "topk", "top_k", 1))
	}
	for _, a := range op.Attrs {
		switch a.Key {
		case "call_target_name", "mhlo.attributes", "mhlo.version", "mhlo.sharding":
			continue
		case "backend_config", "called_computations":
			if a.Value == `""` || a.Value == "[]" {
				continue
			}
		}
		return codeError("custom call @mhlo.%s has the attribute %s = %s, with which compilers do not know it and crash: leave it out", name, a.Key, a.Value)
	}
	inner := dictionaryOf(attributes)
	for _, a := range inner {
		if strings.HasPrefix(f.resolve(a.Value), "#") { // an attribute of another operation
			return codeError("custom call @mhlo.%s has mhlo.attributes with %s = %s, with which compilers do not know it and crash: leave it out", name, a.Key, a.Value)
		}
	}
	if name != "topk" {
		return nil
	}
	if k, ok := lookup(inner, "k"); ok && !isCount(k) {
		return codeError("custom call @mhlo.topk has k = %s, which crashes the compiler: write an integer, or chlo.top_k itself", k)
	}
	if largest, ok := lookup(inner, "largest"); ok && largest != "true" && largest != "false" {
		return codeError("custom call @mhlo.topk has largest = %s, which crashes the compiler: write true or false, or chlo.top_k itself", largest)
	}
	return nil
}

// isCount tells whether an attribute is an integer of at least 0, such as 2 : i64.
func isCount(v string) bool {
	n, _, _ := strings.Cut(v, ":")
	n = strings.TrimSpace(n)
	return n != "" && strings.Trim(n, "0123456789") == ""
}

// manualCall looks at a change between full and shard shapes. The partitioner checks that manual
// shardings are on the shard's side and that the shapes fit, and aborts the process where they do
// not.
func (f *checker) manualCall(target string, op *Operation) error {
	own, ok := f.text(op, "mhlo.sharding")
	if !ok {
		return codeError("custom call @%s has no string mhlo.sharding, which crashes the compiler; use sdy.manual_computation", target)
	}
	if len(op.Operands) != 1 || len(op.Ins) != 1 || len(op.Outs) != 1 {
		return codeError("custom call @%s has the type %s, it has one operand and one result; use sdy.manual_computation", target, op.signature())
	}
	from, ok := f.shardings[op.Operands[0]]
	if !ok {
		return codeError("the operand %s of custom call @%s is not the result of a custom call @Sharding, which crashes the compiler; use sdy.manual_computation", op.Operands[0], target)
	}
	shard := own
	if target == shardToFull {
		shard = from
	}
	if !strings.Contains(shard, "manual") {
		return codeError("custom call @%s has sharding %q on the shard's side, which crashes the compiler: write \"{manual}\" there, or use sdy.manual_computation", target, shard)
	}
	in, known := tensorDims(op.Ins[0])
	out, alsoKnown := tensorDims(op.Outs[0])
	if known && alsoKnown && !slices.Equal(tile(in, from), tile(out, own)) {
		return codeError("custom call @%s goes from %s with sharding %q to %s with sharding %q, whose shards differ, which crashes the compiler; use sdy.manual_computation", target, op.Ins[0], from, op.Outs[0], own)
	}
	return nil
}

// tile is the shape of one shard under a GSPMD sharding.
func tile(dims []int64, sharding string) []int64 {
	counts, ok := strings.CutPrefix(sharding, "{devices=[")
	if !ok {
		return dims
	}
	counts, _, _ = strings.Cut(counts, "]")
	n := integersIn(counts)
	out := slices.Clone(dims)
	for i := range min(len(out), len(n)) {
		if n[i] > 0 && out[i] >= 0 {
			out[i] = out[i]/n[i] + min(out[i]%n[i], 1)
		}
	}
	return out
}
