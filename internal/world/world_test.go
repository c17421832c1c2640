package world

import (
	"net/http"
	"testing"
)

// TestMonth lets a month pass in which nobody does anything: the product is as ready as before, and stops.
func TestMonth(t *testing.T) {
	t.Parallel()
	Run(t, func(b *Box) {
		for range 2 {
			answer, err := http.Get(b.URL(purserHost) + "/readyz")
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				t.Errorf("readyz answers %d", answer.StatusCode)
			}
			b.Pass(15 * day)
		}
	})
}
