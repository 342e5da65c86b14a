package pjrt

import (
	"errors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
)

// PluginReason says why a file cannot be used as a plugin.
type PluginReason int

// The reasons, in the order in which Open looks for them.
const (
	PluginMissing    PluginReason = iota + 1 // no such file, or not readable
	PluginNotFile                            // a directory, a pipe, ...
	PluginUntrusted                          // others can put another library there
	PluginNotLibrary                         // not a shared library of this system
	PluginTruncated                          // a shared library that ends too early
	PluginWrongArch                          // a shared library for other machines
	PluginNoEntry                            // no GetPjrtApi in it
	PluginNotLoaded                          // the dynamic loader refused it
	PluginBadTable                           // GetPjrtApi answered nothing usable
	PluginVersion                            // an API version that this package does not speak
	PluginInitialize                         // PJRT_Plugin_Initialize failed
	PluginChanged                            // not the library of OpenOptions.SHA256
)

// pluginReasons has for each reason its phrase, and what to do about it where the cause does not
// say.
var pluginReasons = map[PluginReason]struct{ phrase, hint string }{
	PluginMissing:    {"missing", "give the path of a plugin's library that this user can read"},
	PluginNotFile:    {"not a regular file", "give the path of the plugin's library itself"},
	PluginUntrusted:  {"not trusted", ""},
	PluginNotLibrary: {"not a shared library", "give the path of a PJRT plugin, such as libtpu.so"},
	PluginTruncated:  {"truncated", "install the plugin again"},
	PluginWrongArch:  {"built for another machine", "install the plugin that is built for this one"},
	PluginNoEntry:    {"not a PJRT plugin", "give the path of a PJRT plugin, such as libtpu.so"},
	PluginNotLoaded:  {"cannot be loaded", "run ldd on the file to see what it lacks"},
	PluginBadTable:   {"bad function table", "install another version of the plugin"},
	PluginVersion:    {"unsupported API version", "install another version of the plugin"},
	PluginInitialize: {"failed to initialize", ""},
	PluginChanged:    {"another library", "install the library of that hash, or give the hash of this one"},
}

// String returns the reason as a short phrase.
func (r PluginReason) String() string { return pluginReasons[r].phrase }

// PathError reports a path that is not used: it is a URL, it leads to a pipe or a device, or others
// could change what it leads to. Its fields Reason, Found and Hint say which, what was found, and
// what to do.
type PathError = files.Error

// PluginError reports why [Open] or [Inspect] refused a file. It matches what its cause matches,
// such as fs.ErrNotExist.
type PluginError struct {
	// Path is the file.
	Path string
	// Reason is the class of the problem.
	Reason PluginReason
	// Detail adds what was found and what was expected; it may be empty.
	Detail string
	// Hint says what to do. It is empty where the cause says it.
	Hint string
	// Err is the cause; it may be nil.
	Err error
}

// pluginError makes the error of a file, with the usual hint of its reason.
func pluginError(path string, r PluginReason, detail string, cause error) *PluginError {
	e := &PluginError{Path: path, Reason: r, Detail: detail, Hint: pluginReasons[r].hint, Err: cause}
	if advised := (*PathError)(nil); errors.As(cause, &advised) && advised.Hint != "" {
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
	return errkind.Text("pjrt: plugin "+e.Path, reason, e.Err, e.Hint)
}

// Kind returns NotFoundError for a file that is missing, PermissionDeniedError for one that is not
// to be trusted, and RuntimeError otherwise.
func (e *PluginError) Kind() errkind.Kind {
	switch e.Reason {
	case PluginMissing:
		return errkind.NotFoundError
	case PluginUntrusted, PluginChanged:
		return errkind.PermissionDeniedError
	}
	return errkind.RuntimeError
}

// Unwrap returns the cause, which may be nil.
func (e *PluginError) Unwrap() error { return e.Err }
