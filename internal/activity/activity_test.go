package activity_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/internal/activity"
)

type recorder []string

func (t *recorder) Begin(kind activity.Kind, name string) func() {
	*t = append(*t, "begin "+kind.String()+" "+name)
	return func() { *t = append(*t, "end "+kind.String()) }
}

func TestBeginCallsObserver(t *testing.T) {
	activity.Begin(t.Context(), activity.Save, "x")()

	var all recorder
	ctx := context.WithoutCancel(activity.WithObserver(t.Context(), all.Begin))
	end := activity.Begin(ctx, activity.Compile, "step")
	end()
	assert.Equal(t, recorder{"begin compile step", "end compile"}, all)
	assert.Zero(t, testing.AllocsPerRun(100, func() { activity.Begin(context.Background(), activity.Exchange, "e")() }))
}

func TestKindNames(t *testing.T) {
	for k := range activity.NumKinds {
		assert.NotEmpty(t, k.String())
		assert.Equal(t, k, activity.ParseKind(k.String()))
	}
	assert.Equal(t, activity.Other, activity.ParseKind("nonsense"))
	assert.Equal(t, "unknown", activity.Kind(200).String())
}
