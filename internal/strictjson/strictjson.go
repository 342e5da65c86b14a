// Package strictjson decodes the JSON files that users write. Package json keeps the last of two equal
// keys, and ignores the letter case of keys: a limit that is written twice then has no effect. Decode
// returns an error for such a file, for an unknown key, and for text after the value.
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

// Decode decodes data, which has one JSON value, into the value that into points to. Errors name the
// key.
func Decode(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return readable(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON value")
	}
	return keys(json.NewDecoder(bytes.NewReader(data)), reflect.TypeOf(into), true)
}

// Unmarshal is json.Unmarshal for a file of another program, in which unknown keys are ignored: a key
// that an object has twice is an error.
func Unmarshal(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return err
	}
	return keys(json.NewDecoder(bytes.NewReader(data)), nil, false)
}

// readable replaces the error of a truncated file by one that names the problem.
func readable(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return errors.New("the file ends before the end of its JSON value")
	}
	return err
}

// keys checks the keys of the next value, which is decoded into a value of type t; nil is unknown. With
// folded set, keys that differ only in letter case are the same.
func keys(d *json.Decoder, t reflect.Type, folded bool) error {
	token, err := d.Token()
	open, nested := token.(json.Delim)
	if err != nil || !nested {
		return err
	}
	t = decoded(t)
	seen := map[string]string{}
	for d.More() {
		element := elementOf(t)
		if open == '{' {
			token, err := d.Token()
			if err != nil {
				return err
			}
			key, _ := token.(string)
			same := key
			if folded {
				same = fold(key)
			}
			if first, twice := seen[same]; twice && first == key {
				return fmt.Errorf("the key %q is there twice", key)
			} else if twice {
				return fmt.Errorf("the keys %q and %q differ only in letter case", first, key)
			}
			seen[same] = key
			if t != nil && t.Kind() == reflect.Struct {
				if element, err = fieldOf(t, key); err != nil {
					return err
				}
			}
		}
		if err := keys(d, element, folded); err != nil {
			return err
		}
	}
	_, err = d.Token() // the end
	return err
}

// decoded returns the type behind pointers, or nil for a type that decodes itself.
func decoded(t reflect.Type) reflect.Type {
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

// elementOf returns the type of the elements of a list or a map, and nil for other types.
func elementOf(t reflect.Type) reflect.Type {
	if t != nil && slices.Contains([]reflect.Kind{reflect.Slice, reflect.Array, reflect.Map}, t.Kind()) {
		return t.Elem()
	}
	return nil
}

// fieldOf returns the type of the field of a key. A field with a name in its tag has that
// name in that letter case.
func fieldOf(t reflect.Type, key string) (reflect.Type, error) {
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

// fold returns one text for all texts that differ only in letter case.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, s)
}
