package strictjson_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/strictjson"
)

// file has a field for each kind of value in the files of this module.
type file struct {
	Version int               `json:"version"`
	Limits  map[string]limit  `json:"limits"`
	List    []*limit          `json:"list,omitempty"`
	Raw     json.RawMessage   `json:"raw,omitempty"`
	Texts   map[string]string `json:"texts,omitempty"`
	Plain   string
}

type limit struct {
	Bytes int `json:"bytes"`
}

func TestDecode(t *testing.T) {
	var f file
	require.NoError(t,
		strictjson.Decode(
			[]byte(` {"version": 1, "limits": {"a": {"bytes": 2}, "b": {"bytes": 3}}, "list": [{"bytes": 4}, null],
		"raw": {"x": [1, {"bytes": 1}]}, "texts": {"x": "y"}, "plain": "z"} `), &f))
	assert.Equal(t, 3, f.Limits["b"].Bytes)
	assert.Equal(t, 4, f.List[0].Bytes)
	assert.Equal(t, "z", f.Plain)
	assert.JSONEq(t, `{"x": [1, {"bytes": 1}]}`, string(f.Raw))
}

func TestDecodeErrors(t *testing.T) {
	for text, want := range map[string]string{
		``:                              "ends before the end",
		`{"version": 1`:                 "ends before the end",
		`{"version": 1} {}`:             "text after",
		`{"version": 1, "versions": 2}`: `unknown field "versions"`,
		`{"version": 1, "version": 1}`:  `"version" is duplicate`,
		`{"version": 1, "Version": 2}`:  `"version" and "Version" differ only in letter case`,
		`{"Version": 1}`:                `unknown key "Version"; write "version"`,
		`{"limits": {"a": {"bytes": 1}, "a": {"bytes": 2}}}`:   `"a" is duplicate`,
		`{"limits": {"a": {"bytes": 1}, "A": {"bytes": 2}}}`:   `"a" and "A" differ only`,
		`{"limits": {"a": {"bytes": 1, "Bytes": 2}}}`:          `"bytes" and "Bytes" differ only`,
		`{"limits": {"a": {"BYTES": 2}}}`:                      `write "bytes"`,
		`{"list": [{"bytes": 1}, {"bytes": 1, "bytes": 2}]}`:   `"bytes" is duplicate`,
		`{"raw": {"x": 1, "x": 2}}`:                            `"x" is duplicate`,
		`{"raw": [{"k": 1, "\u212a": 2}]}`:                     "differ only in letter case",
		`{"texts": {"x": "1", "x": "2"}}`:                      `"x" is duplicate`,
		`{"limits": {"a": {"bytes": 1}}, "l\u0069mits": null}`: `"limits" is duplicate`,
	} {
		var f file
		assert.ErrorContains(t, strictjson.Decode([]byte(text), &f), want, text)
	}
}

func TestUnmarshalIgnoresUnknownKeys(t *testing.T) {
	var l limit
	require.NoError(t, strictjson.Unmarshal([]byte(`{"bytes": 1, "labels": {"a": 1, "A": 2}}`), &l))
	assert.ErrorContains(t, strictjson.Unmarshal([]byte(`{"bytes": 1, "bytes": 2}`), &l), `"bytes" is duplicate`)
	assert.Error(t, strictjson.Unmarshal([]byte(`{`), &l))
}
