// Package strictjson decodes JSON files that users write. It returns an error for duplicate keys,
// keys that differ only in letter case, unknown keys, and text after the value. Package
// encoding/json ignores the first of two equal keys, for example one of two limits.
package strictjson
