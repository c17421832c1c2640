package voice

import (
	"slices"
	"testing"
)

// TestFlatten reads tools in both shapes.
func TestFlatten(t *testing.T) {
	t.Parallel()
	a, err := flattenTools(
		[]byte(`[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}]`))
	b, err2 := flattenTools([]byte(`[{"type":"function","name":"f","description":"d","parameters":{"type":"object"}}]`))
	if err != nil || err2 != nil || !slices.Equal(a, b) {
		t.Errorf("%s %v, %s %v", a, err, b, err2)
	}
}
