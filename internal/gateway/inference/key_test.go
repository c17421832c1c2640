package inference

import (
	"testing"

	"github.com/purserhq/purser/internal/gateway/inference/plan"
)

// FuzzFingerprint: route, feature and body cannot be shifted into each other.
func FuzzFingerprint(f *testing.F) {
	f.Add("ai/m", "a", []byte("b"), "ai/ma", "", []byte("b"))
	f.Add("ai/m", "", []byte("ab"), "ai/m", "a", []byte("b"))
	f.Fuzz(func(t *testing.T, path1, feature1 string, body1 []byte, path2, feature2 string, body2 []byte) {
		if len(path1)|len(feature1)|len(path2)|len(feature2) > 1<<15 {
			return
		}
		same := path1 == path2 && feature1 == feature2 && string(body1) == string(body2)
		first := fingerprint(plan.Route{Path: path1}, feature1, "", body1)
		second := fingerprint(plan.Route{Path: path2}, feature2, "", body2)
		if got := first == second; got != same {
			t.Errorf("(%q %q %q) and (%q %q %q): equal %v", path1, feature1, body1, path2, feature2, body2, got)
		}
	})
}
