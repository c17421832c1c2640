package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/ledger/rules"
)

// TestOrderOfEvents keeps the order of each connection's events when the clock has stepped back between them.
func TestOrderOfEvents(t *testing.T) {
	t.Parallel()
	list := []rules.Event{
		{ConnectionID: "a", Seq: 1, CreatedUS: 90}, {ConnectionID: "a", Seq: 2, CreatedUS: 10},
		{ConnectionID: "b", Seq: 7, CreatedUS: 50}, {ConnectionID: "a", Seq: 3, CreatedUS: 60},
		{ID: "e", CreatedUS: 55},
	}
	orderEvents(list)
	var got []string
	for _, e := range list {
		got = append(got, fmt.Sprint(e.ConnectionID, e.Seq))
	}
	if want := []string{"a1", "b7", "0", "a2", "a3"}; !slices.Equal(got, want) {
		t.Errorf("%s, want %s", strings.Join(got, " "), strings.Join(want, " "))
	}
}
