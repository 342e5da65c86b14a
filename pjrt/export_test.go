package pjrt

// What tests outside the package look at.

// EncodeOptions encodes for devices 0 to n-1.
func EncodeOptions(o CompileOptions, n int) ([]byte, error) {
	return o.encode(n, func(id int) bool { return id >= 0 && id < n })
}

// DTypeNames and ExtensionNames are the tables that mirror C enums.
func DTypeNames() []string {
	var out []string
	for _, d := range dtypes {
		out = append(out, d.name)
	}
	return out
}

// CodeNames are the error codes' names by number.
func CodeNames() []string {
	var out []string
	for _, c := range codes {
		out = append(out, c.name)
	}
	return out
}

// ExtensionNames are the extensions' names by number.
func ExtensionNames() []string { return extensionNames[:] }

// ForgetParameters makes x one whose plugin does not tell its parameters.
func ForgetParameters(x *LoadedExecutable) {
	x.params.Store(nil)
	if x.first != nil {
		x.first.params = nil
	}
}

// Kept is the number of launches whose donated handles the program still holds.
func Kept(x *LoadedExecutable) int { return x.first.Kept() }

// WithoutParameters is a serialized executable in the form that does not name its parameters.
func WithoutParameters(b []byte) ([]byte, error) {
	payload, _, err := unseal(b)
	return seal(payload, nil), err
}
