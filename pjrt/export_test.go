package pjrt

// EncodeOptions encodes o for devices 0 to n-1.
func EncodeOptions(o CompileOptions, n int) ([]byte, error) {
	return o.encode(n, func(id int) bool { return id >= 0 && id < n })
}

// DTypeNames returns the names of the element types by number.
func DTypeNames() []string {
	var out []string
	for _, d := range dtypes {
		out = append(out, d.name)
	}
	return out
}

// CodeNames returns the names of the error codes by number.
func CodeNames() []string {
	var out []string
	for _, c := range codes {
		out = append(out, c.name)
	}
	return out
}

// ExtensionNames returns the names of the extensions by number.
func ExtensionNames() []string { return extensionNames[:] }

// ForgetParameters makes the parameters of x unknown, as if the plugin did not report them.
func ForgetParameters(x *LoadedExecutable) {
	x.params.Store(nil)
	if x.primaryLaunch != nil {
		x.primaryLaunch.params = nil
	}
}

// Kept returns the number of launches whose donated handles are not freed yet.
func Kept(x *LoadedExecutable) int { return x.primaryLaunch.NumRunning() }

// WithoutParameters converts a serialized executable to the format without parameters.
func WithoutParameters(b []byte) ([]byte, error) {
	payload, _, err := decodeSerialized(b)
	return encodeSerialized(payload, nil), err
}
