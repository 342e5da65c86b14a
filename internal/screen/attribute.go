package screen

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// The module attributes that crash compilers.
const (
	aliasKey = "mhlo.input_output_alias"
	autoKey  = "mhlo.use_auto_spmd_partitioning"
	// layoutPrefix starts the names of layouts and tiles of main's parameters and result.
	layoutPrefix = "mhlo.xla_entry_computation_"
	// frontendKey holds attributes that compilers hand on, and read.
	frontendKey = "mhlo.frontend_attributes"
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

// attributes looks at attributes of an operation, or of a function's arguments or results; op is
// nil for an alias.
func (f *checker) attributes(op *Operation, attrs []Attr) error {
	for _, a := range attrs {
		module := op != nil && op.Name == "builtin.module"
		value := a.Value
		if op != nil {
			value = f.resolve(value)
		}
		f.sdy = f.sdy || strings.HasPrefix(a.Key, "sdy.")
		switch {
		case module && a.Key == aliasKey:
			return errAliasKey()
		case module && a.Key == autoKey && strings.HasPrefix(value, "true"):
			return errAutoKey("= true ")
		case module && strings.HasPrefix(a.Key, layoutPrefix):
			return errLayoutKey(a.Key)
		case strings.HasPrefix(a.Key, exportPrefix):
			return errExportKey(a.Key)
		case a.Key == frontendKey:
			for _, inner := range dictionaryOf(value) {
				if strings.HasPrefix(inner.Key, exportPrefix) {
					return errExportKey(inner.Key)
				}
			}
		case a.Key == "mhlo.sharding" || module && strings.HasPrefix(a.Key, "mhlo.spmd_"):
			if err := f.shardingsOf(value, a.Key == "mhlo.sharding"); err != nil {
				return err
			}
		}
	}
	return nil
}

// shardingsOf looks at a sharding of GSPMD, or at a list of them.
func (f *checker) shardingsOf(value string, counted bool) error {
	if inside, ok := strings.CutPrefix(value, "["); ok {
		for _, e := range splitList(strings.TrimSuffix(inside, "]")) {
			if err := f.shardingsOf(f.resolve(e), false); err != nil {
				return err
			}
		}
		return nil
	}
	if !strings.HasPrefix(value, `"`) {
		return nil
	}
	text, _ := scanString(value)
	if counted && strings.Contains(text, "manual") {
		f.manual++
	}
	return checkSharding(text)
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
