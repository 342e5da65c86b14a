package sharding_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestParseShardyRejectsMalformedText(t *testing.T) {
	tests := map[string]struct {
		text        string
		unsupported bool
	}{
		"empty":           {"", false},
		"no mesh":         {`<[{}]>`, false},
		"open not last":   {`<@m, [{?, "x"}]>`, false},
		"unclosed":        {`<@m, [{"x"}]`, false},
		"unclosed string": {`<@m, [{"x}]>`, false},
		"trailing":        {`<@m, [{}]> x`, false},
		"twice":           {`<@m, [{}], replicated={"x"}, replicated={"y"}>`, false},
		"empty axis":      {`<@m, [{""}]>`, false},
		"bad escape":      {`<@m, [{"\q"}]>`, false},
		"sub-axis":        {`<@m, [{"x":(1)2}]>`, true},
		"priority":        {`<@m, [{"x"}p1]>`, true},
		"unreduced":       {`<@m, [{}], unreduced={"x"}>`, true},
		"inline mesh":     {`<mesh<["x"=2]>, [{}]>`, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := sharding.ParseShardy(test.text)
			require.ErrorIs(t, err, sharding.ErrSyntax)
			assert.Equal(t, test.unsupported, errors.Is(err, errors.ErrUnsupported), err)
		})
	}
}

func FuzzParseShardy(f *testing.F) {
	for _, seed := range []string{
		`#sdy.sharding<@mesh, [{"replica"}, {?}], replicated={"x"}>`, `<@"a b", [{"x", ?}]>`, `<@m, []>`,
		`<@m, [{"x":(1)2}p1]>`, `<@m, [{"\41\\\"\n"}]>`, `sdy.mesh @mesh = <["replica"=2, "logical"=4]>`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if name, spec, err := sharding.ParseShardy(text); err == nil {
			again := spec.ShardyText(name)
			name2, spec2, err := sharding.ParseShardy(again)
			require.NoError(t, err, again)
			require.Equal(t, name, name2)
			require.True(t, spec.Equal(spec2), again)
		}
	})
}
