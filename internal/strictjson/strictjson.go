// Package strictjson decodes JSON files that users write. Package json accepts duplicate keys and
// keys that differ only in letter case, so that a limit that is set twice can be ignored silently.
// This package returns an error for such a file, for unknown keys, and for text after the value.
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

// Decode decodes data, which must contain one JSON value, to dst, which must be a pointer. Errors
// contain the key.
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

// Unmarshal is like json.Unmarshal, but duplicate keys are an error. It is for files of other
// programs, so unknown keys are ignored.
func Unmarshal(data []byte, dst any) error {
	if err := json.Unmarshal(data, dst); err != nil {
		return err
	}
	return checkKeys(json.NewDecoder(bytes.NewReader(data)), nil, false)
}

// truncationError replaces the errors of truncated files.
func truncationError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return errors.New("the file ends before the end of its JSON value")
	}
	return err
}

// checkKeys checks the keys of the next value. t is the type of its destination, or nil if unknown.
// If foldCase is true, keys that differ only in letter case are an error.
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

// derefStruct returns the type behind pointers, or nil for a type that decodes itself.
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

// containerElem returns the type of the elements of a list or a map, and nil for other types.
func containerElem(t reflect.Type) reflect.Type {
	if t != nil && slices.Contains([]reflect.Kind{reflect.Slice, reflect.Array, reflect.Map}, t.Kind()) {
		return t.Elem()
	}
	return nil
}

// fieldType returns the type of the field for a key. The key must have the letter case of the name
// in the tag of the field.
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

// foldKey returns the same string for all strings that differ only in letter case.
func foldKey(s string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, s)
}
