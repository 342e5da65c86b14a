// Package strictjson decodes JSON files that users write. It returns an error for duplicate keys,
// for keys that differ only in letter case, for unknown keys, and for text after the value. Package
// encoding/json accepts duplicate keys, so that one of two limits in a file would be ignored
// silently.
package strictjson
