package clusterresolver

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseEndpoints(t *testing.T) {
	got, err := ParseEndpoints("unknown:unknown:10.164.0.41, unknown:unknown:10.164.0.22,n:7:2001:db8::1,host-3\n")
	require.NoError(t, err)
	assert.Equal(t, []Endpoint{
		{"unknown", "unknown", "10.164.0.41"}, {"unknown", "unknown", "10.164.0.22"}, {"n", "7", "2001:db8::1"},
		{"", "", "host-3"},
	}, got)
	for text, want := range map[string]string{
		"":                          "empty",
		" \n":                       "empty",
		"a:b":                       "two fields",
		"a:b:":                      "no valid host",
		"a:b:c,":                    "no valid host",
		"a:b:10.0.0.1,a:b:10.0.0.1": "two workers with one address",
		"a:b:ho st":                 "no valid host",
		"a:b:http://x":              "no valid host",
		strings.Repeat(",", 1<<17):  "more than 65536 workers",
	} {
		_, err := ParseEndpoints(text)
		var pe *ParseError
		require.ErrorAs(t, err, &pe, "%.40q", text)
		assert.ErrorContains(t, err, want)
		assert.Less(t, len(err.Error()), 400)
	}
}

func TestParseAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		port int
		want []string
		err  string
	}{
		"ports":            {"a:8476,b:8477", 0, []string{"a:8476", "b:8477"}, ""},
		"scheme, one port": {"grpc://10.1.2.3:8470,grpc://10.1.2.4", 8470, []string{"10.1.2.3:8470", "10.1.2.4:8470"}, ""},
		"spaces":           {" a:1 , b:2 ", 0, []string{"a:1", "b:2"}, ""},
		"ipv6": {"[2001:db8::1]:1,[2001:db8::2],2001:db8::3", 9, []string{"[2001:db8::1]:1", "[2001:db8::2]:9",
			"[2001:db8::3]:9"}, ""},
		"no port, no default": {"a", 0, nil, "address has no port"},
		"port zero":           {"a:0", 0, nil, "not a port"},
		"port too large":      {"a:65536", 0, nil, "not a port"},
		"empty item":          {"a:1,,b:1", 0, nil, "empty item"},
		"empty":               {"", 0, nil, "empty list"},
		"twice":               {"a:1,a:1", 0, nil, "listed twice"},
		"other scheme":        {"http://a:1", 0, nil, "not an address"},
		"path":                {"a:1/x", 0, nil, "not a port"},
		"bad host":            {"-a:1", 0, nil, "not an address"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseAddresses("X", c.text, c.port)
			if c.err != "" {
				assert.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}
