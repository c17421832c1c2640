package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/purserhq/purser/internal/base/apierr"
)

// A heavyPage is one that Turns serves. It writes for each element of write, and its client has read then.
type heavyPage struct {
	write  chan string
	ended  chan error
	client *slowClient
}

// A slowClient reads what is written when it is asked to.
type slowClient struct {
	http.ResponseWriter
	writing, reads chan string
}

func (c *slowClient) Write(b []byte) (int, error) {
	c.writing <- string(b)
	<-c.reads
	return len(b), nil
}

// begin begins a page of an account, and returns when it has a turn, or why it has none.
func begin(ctx context.Context, turns *Turns, account string) (*heavyPage, error) {
	p := &heavyPage{
		write:  make(chan string),
		ended:  make(chan error, 1),
		client: &slowClient{httptest.NewRecorder(), make(chan string), make(chan string)},
	}
	begun := make(chan struct{})
	go func() {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		p.ended <- turns.Serve(p.client, r, account, func(w http.ResponseWriter, _ *http.Request) error {
			close(begun)
			for text := range p.write {
				if _, err := fmt.Fprint(w, text); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	select {
	case <-begun:
		return p, nil
	case err := <-p.ended:
		return nil, err
	}
}

// end ends a page that has a turn.
func (p *heavyPage) end(t *testing.T) {
	t.Helper()
	close(p.write)
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
}

func refusedAs(code apierr.Code, err error) bool {
	e, ok := errors.AsType[*apierr.Error](err)
	return ok && e.Code == code && e.RetryAfter == turnWait
}

func TestTurns(t *testing.T) {
	t.Parallel()
	var turns Turns
	one, err := begin(t.Context(), &turns, "wac_1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := begin(t.Context(), &turns, "wac_1"); !refusedAs(apierr.RateLimited, err) {
		t.Errorf("the same account: %v", err)
	}
	two, err := begin(t.Context(), &turns, "wac_2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := begin(t.Context(), &turns, "wac_3"); !refusedAs(apierr.Unavailable, err) {
		t.Errorf("one too many: %v", err)
	}
	one.end(t)
	three, err := begin(t.Context(), &turns, "wac_3")
	if err != nil {
		t.Errorf("after one has left: %v", err)
	}
	if _, err := begin(t.Context(), &turns, "wac_1"); !refusedAs(apierr.Unavailable, err) {
		t.Errorf("one too many: %v", err)
	}
	two.end(t)
	three.end(t)
	one, err = begin(t.Context(), &turns, "wac_1")
	if err != nil {
		t.Fatalf("it can come again: %v", err)
	}
	one.end(t)
	if turns.running != 0 || len(turns.pages) != 0 {
		t.Errorf("left: %+v", &turns)
	}
}

// TestSlowClientsTakeNoTurns: pages whose clients do not read keep no other page from being made; when they read on,
// the pages go on in order. A page whose client leaves while it waits for its turn ends.
func TestSlowClientsTakeNoTurns(t *testing.T) {
	t.Parallel()
	var turns Turns
	leaving, leave := context.WithCancel(t.Context())
	var slow []*heavyPage
	for i := range 20 {
		ctx := t.Context()
		if i == 0 {
			ctx = leaving
		}
		p, err := begin(ctx, &turns, fmt.Sprint("slow ", i))
		if err != nil {
			t.Fatalf("page %d: %v", i, err)
		}
		p.write <- "first"
		<-p.client.writing
		slow = append(slow, p)
	}
	busy := make([]*heavyPage, maxTurns)
	for i := range busy {
		var err error
		if busy[i], err = begin(t.Context(), &turns, fmt.Sprint("busy ", i)); err != nil {
			t.Fatal(err)
		}
	}
	slow[0].client.reads <- ""
	leave()
	if err := <-slow[0].ended; !errors.Is(err, context.Canceled) {
		t.Errorf("its client has left: %v", err)
	}
	slow[1].client.reads <- "" // waits for a turn
	busy[0].end(t)
	slow[1].end(t)
	busy[1].end(t)
	for _, p := range slow[2:] {
		p.client.reads <- ""
		p.end(t)
	}
	if turns.running != 0 || len(turns.pages) != 0 || len(turns.waiting) != 0 {
		t.Errorf("left: %+v", &turns)
	}
}

// TestPagesAreBounded: so many pages may wait for their clients.
func TestPagesAreBounded(t *testing.T) {
	t.Parallel()
	var turns Turns
	var slow []*heavyPage
	for i := range maxPages {
		p, err := begin(t.Context(), &turns, fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		p.write <- "first"
		<-p.client.writing
		slow = append(slow, p)
	}
	if _, err := begin(t.Context(), &turns, "one more"); !refusedAs(apierr.Unavailable, err) {
		t.Errorf("one too many: %v", err)
	}
	for _, p := range slow {
		p.client.reads <- ""
		p.end(t)
	}
}
