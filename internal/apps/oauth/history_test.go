package oauth

import (
	"context"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// Any history of refreshes keeps invariant I-27 and the rule of reuse: a used token is refused, unless it comes with
// the key of its exchange before its successor was used. The family ends once its successor was used too, or when it
// comes with another key.
func TestRefreshHistories(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		conn := w.token(w.live, codeForm(w.approve(w.signedIn("person@example.com"), w.live, "5"))).want(t, "exchange",
			200, "").ConnectionID
		rapid.Check(t, func(rt *rapid.T) {
			h := w.newHistory(rt, conn)
			for range rapid.IntRange(1, 10).Draw(rt, "steps") {
				w.clock.pass(3 * time.Second) // no step is a race with the one before it
				h.refresh(rt, rapid.IntRange(0, len(h.tokens)-1).Draw(rt, "token"),
					rapid.SampledFrom([]string{"", h.keys[0], h.keys[1]}).Draw(rt, "key"))
				h.check(rt)
			}
		})
	})
}

// A history is one family: its tokens in the order of their birth.
type history struct {
	w       *world
	family  string
	tokens  []TokenResponse
	next    []int    // which token each refresh token became, -1 = unused
	used    []string // the key of each exchange
	keys    [2]string
	revoked bool
}

func (w *world) newHistory(rt *rapid.T, connectionID string) *history {
	h := &history{
		w:      w,
		family: id.New(familyPrefix, w.clock.now()),
		used:   []string{""},
		keys:   [2]string{id.NewUUID(), id.NewUUID()},
	}
	err := w.d.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		first, err := w.store.IssueTokens(ctx, tx, connectionID, w.live.ID, h.family)
		h.tokens, h.next = []TokenResponse{first}, []int{-1}
		return err
	})
	if err != nil {
		rt.Fatal(err)
	}
	return h
}

// refresh presents a token with a key, "" = none, and compares the answer with the rule. One key may serve many tokens.
func (h *history) refresh(rt *rapid.T, i int, key string) {
	token := h.tokens[i].RefreshToken
	a, err := h.w.store.runGrant(h.w.t.Context(), h.w.live.App, tokenRequest{
		RefreshToken: token,
		Key:          key,
		Fingerprint:  token,
		ArrivedUS:    h.w.clock.now().UnixMicro(),
	})
	if err != nil {
		rt.Fatal(err)
	}
	if h.isKeyTaken(i, key) {
		if codeOf(a.rejected) != "idempotency_key_reused" {
			rt.Fatalf("token %d: %v, want idempotency_key_reused", i, a.rejected)
		}
		return
	}
	isUsed := h.next[i] >= 0
	isLost := isUsed && h.next[h.next[i]] < 0 // the successor was not used
	isRetry := !h.revoked && isLost && key != "" && key == h.used[i]
	if want := !h.revoked && !isUsed || isRetry; (a.rejected == nil) != want || a.replayed != isRetry {
		rt.Fatalf("token %d: refused %v, replayed %t, want success %t, a replay %t", i, a.rejected, a.replayed, want,
			isRetry)
	}
	switch {
	case isRetry:
		if a.tokens != h.tokens[h.next[i]] {
			rt.Fatalf("token %d: a retry got other tokens", i)
		}
	case a.rejected == nil:
		h.next[i], h.used[i] = len(h.tokens), key
		h.tokens, h.next, h.used = append(h.tokens, a.tokens), append(h.next, -1), append(h.used, "")
	case codeOf(a.rejected) != "invalid_grant":
		rt.Fatalf("token %d: %v", i, a.rejected)
	case !h.revoked && (!isLost || key != "" && h.used[i] != "" && key != h.used[i]):
		h.revoked = true
	}
	if a.reuseDetected && !h.revoked {
		rt.Fatalf("token %d: the family ended for nothing", i)
	}
}

// isKeyTaken reports whether an answer is kept under the key for another token, whose successor is not token i.
func (h *history) isKeyTaken(i int, key string) bool {
	for j, next := range h.next {
		if key != "" && h.used[j] == key && j != i && next != i && h.next[next] < 0 {
			return true
		}
	}
	return false
}

// check compares the tables with the model (I-27).
func (h *history) check(rt *rapid.T) {
	unused := h.w.count(`SELECT COUNT(*) FROM oauth_tokens
		WHERE family_id = $1 AND kind = 'refresh' AND used_us IS NULL AND revoked_us IS NULL`, h.family)
	if want := map[bool]int{false: 1, true: 0}[h.revoked]; unused != want {
		rt.Fatalf("%d unused refresh tokens, want %d", unused, want)
	}
	for i, t := range h.tokens {
		if h.w.alive(t.AccessToken) == h.revoked {
			rt.Fatalf("family revoked %t, access token %d alive %t", h.revoked, i, !h.revoked)
		}
	}
}

// A family that ends while its newest token is being refreshed ends whole: the
// tokens of that refresh too, whichever of the two came first.
func TestFamilyEndsWhole(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		conn := w.token(w.live, codeForm(w.approve(w.signedIn("person@example.com"), w.live, "5"))).want(t, "exchange",
			200, "").ConnectionID
		present := func(token string) answer {
			a, err := w.store.runGrant(t.Context(), w.live.App,
				tokenRequest{RefreshToken: token, ArrivedUS: w.clock.now().UnixMicro()})
			if err != nil {
				t.Error(err)
			}
			return a
		}
		for range 20 {
			familyID, old := id.New(familyPrefix, w.clock.now()), ""
			w.tx(func(ctx context.Context, tx *db.Tx) error {
				first, err := w.store.IssueTokens(ctx, tx, conn, w.live.ID, familyID)
				old = first.RefreshToken
				return err
			})
			newest := present(present(old).tokens.RefreshToken).tokens.RefreshToken
			w.clock.pass(time.Second)
			var wg sync.WaitGroup
			wg.Go(func() { // as fast as answers come
				a := present(newest)
				for n := 0; a.rejected == nil && n < 1000; n++ { // a family that lives on would never stop
					a = present(a.tokens.RefreshToken)
				}
			})
			wg.Go(func() { present(old) })
			wg.Wait()
			if n := w.count(`SELECT COUNT(*) FROM oauth_tokens
				WHERE family_id = $1 AND revoked_us IS NULL`, familyID); n != 0 {
				t.Fatalf("%d tokens outlive their family", n)
			}
		}
	})
}
