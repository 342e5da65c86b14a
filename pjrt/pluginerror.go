package pjrt

import (
	"errors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
)

// PluginReason is the reason why a file cannot be used as a plugin.
type PluginReason int

// These are the reasons.
const (
	PluginMissing    PluginReason = iota + 1 // the file does not exist or cannot be read
	PluginNotFile                            // a directory, a pipe or another special file
	PluginUntrusted                          // other users could replace the library
	PluginNotLibrary                         // not a shared library for this operating system
	PluginTruncated                          // the end of the shared library is missing
	PluginWrongArch                          // a shared library for another architecture
	PluginNoEntry                            // the library does not export GetPjrtApi
	PluginNotLoaded                          // the dynamic loader returned an error
	PluginBadTable                           // GetPjrtApi returned an invalid table
	PluginVersion                            // the API version is not supported
	PluginInitialize                         // PJRT_Plugin_Initialize failed
	PluginChanged                            // the hash is not OpenOptions.SHA256
	PluginDamaged                            // changed or truncated since it was installed
)

// pluginReasons contains a short phrase and the default hint for each reason.
var pluginReasons = map[PluginReason]struct{ phrase, hint string }{
	PluginMissing:    {"missing", "use the path of a plugin's library that this user can read"},
	PluginNotFile:    {"not a regular file", "use the path of the plugin's library"},
	PluginUntrusted:  {"not trusted", ""},
	PluginNotLibrary: {"not a shared library", "use the path of a PJRT plugin, such as libtpu.so"},
	PluginTruncated:  {"truncated", "install the plugin again"},
	PluginWrongArch:  {"built for another machine", "install the plugin for this architecture"},
	PluginNoEntry:    {"not a PJRT plugin", "use the path of a PJRT plugin, such as libtpu.so"},
	PluginNotLoaded:  {"cannot be loaded", "run ldd on the file to find missing libraries"},
	PluginBadTable:   {"bad function table", "install another version of the plugin"},
	PluginVersion:    {"unsupported API version", "install another version of the plugin"},
	PluginInitialize: {"failed to initialize", ""},
	PluginDamaged:    {"damaged", "install the plugin again"},
	PluginChanged: {"unexpected contents",
		"install the library with the expected hash, or change the expected hash"},
}

// String returns the reason as a short phrase.
func (r PluginReason) String() string { return pluginReasons[r].phrase }

// PathError reports a path that is rejected because it is a URL, a pipe or a device, or because other
// users could modify it. Its fields Reason, Found and Hint describe the problem and a correction.
type PathError = files.Error

// PluginError reports why [Open] or [VerifyPlugin] rejected a file. It matches the errors that its
// cause matches, such as fs.ErrNotExist.
type PluginError struct {
	// Path is the file.
	Path string
	// Reason is the class of the problem.
	Reason PluginReason
	// Detail describes the actual and the expected value. It may be empty.
	Detail string
	// Hint suggests a correction. It is empty if the cause contains one.
	Hint string
	// Err is the cause, or nil.
	Err error
}

// pluginError returns a PluginError with the default hint of its reason.
func pluginError(path string, r PluginReason, detail string, cause error) *PluginError {
	e := &PluginError{Path: path, Reason: r, Detail: detail, Hint: pluginReasons[r].hint, Err: cause}
	if pathErr := (*PathError)(nil); errors.As(cause, &pathErr) && pathErr.Hint != "" {
		e.Hint = ""
	}
	return e
}

// Error returns "pjrt: plugin path: reason: detail: cause; hint".
func (e *PluginError) Error() string {
	reason := e.Reason.String()
	if e.Detail != "" {
		reason += ": " + e.Detail
	}
	return errkind.Format("pjrt: plugin "+e.Path, reason, e.Err, e.Hint)
}

// Kind returns NotFoundError for PluginMissing, PermissionDeniedError for PluginUntrusted and
// PluginChanged, and RuntimeError otherwise.
func (e *PluginError) Kind() errkind.Kind {
	switch e.Reason {
	case PluginMissing:
		return errkind.NotFoundError
	case PluginUntrusted, PluginChanged:
		return errkind.PermissionDeniedError
	}
	return errkind.RuntimeError
}

// Unwrap returns Err.
func (e *PluginError) Unwrap() error { return e.Err }
