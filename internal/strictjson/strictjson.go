package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// Decode decodes data, which must contain exactly one JSON value, into *dst. Errors name the key.
func Decode(data []byte, dst any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(dst); err != nil {
		return truncationError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is text after the JSON value")
	}
	return checkKeys(json.NewDecoder(bytes.NewReader(data)), reflect.TypeOf(dst), true)
}

// Unmarshal is like json.Unmarshal, but returns an error for duplicate keys. It ignores unknown
// keys, because it is used for files that other programs write.
func Unmarshal(data []byte, dst any) error {
	if err := json.Unmarshal(data, dst); err != nil {
		return err
	}
	return checkKeys(json.NewDecoder(bytes.NewReader(data)), nil, false)
}

// truncationError returns a clearer error if err was caused by truncated JSON, and otherwise err.
func truncationError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return errors.New("the file ends before the end of its JSON value")
	}
	return err
}

// checkKeys reads a JSON value and returns an error for invalid keys. t is the type of the destination, or
// nil if unknown. If foldCase is true, keys that differ only in letter case are an error.
func checkKeys(d *json.Decoder, t reflect.Type, foldCase bool) error {
	token, err := d.Token()
	open, nested := token.(json.Delim)
	if err != nil || !nested {
		return err
	}
	t = derefStruct(t)
	seen := map[string]string{}
	for d.More() {
		element := containerElem(t)
		if open == '{' {
			token, err := d.Token()
			if err != nil {
				return err
			}
			key, _ := token.(string)
			same := key
			if foldCase {
				same = foldKey(key)
			}
			if first, ok := seen[same]; ok && first == key {
				return fmt.Errorf("the key %q is duplicate", key)
			} else if ok {
				return fmt.Errorf("the keys %q and %q differ only in letter case", first, key)
			}
			seen[same] = key
			if t != nil && t.Kind() == reflect.Struct {
				if element, err = fieldType(t, key); err != nil {
					return err
				}
			}
		}
		if err := checkKeys(d, element, foldCase); err != nil {
			return err
		}
	}
	_, err = d.Token() // the closing bracket
	return err
}

// derefStruct returns the type to which pointers lead, or nil if this type implements its own JSON
// decoding.
func derefStruct(t reflect.Type) reflect.Type {
	for t != nil {
		if t.Kind() != reflect.Pointer {
			if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
				return nil
			}
			return t
		}
		t = t.Elem()
	}
	return nil
}

// containerElem returns the element type of a slice, an array or a map, and nil for other types.
func containerElem(t reflect.Type) reflect.Type {
	if t != nil && slices.Contains([]reflect.Kind{reflect.Slice, reflect.Array, reflect.Map}, t.Kind()) {
		return t.Elem()
	}
	return nil
}

// fieldType returns the type of the struct field for a key. It returns an error if the letter case
// of the key differs from the field's JSON name.
func fieldType(t reflect.Type, key string) (reflect.Type, error) {
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == key || name == "" && strings.EqualFold(f.Name, key):
			return f.Type, nil
		case name != "" && strings.EqualFold(name, key):
			return nil, fmt.Errorf("unknown key %q; write %q", key, name)
		}
	}
	return nil, nil
}

// foldKey returns a canonical form of a key. Keys have the same canonical form if they differ only
// in letter case.
func foldKey(s string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, s)
}
