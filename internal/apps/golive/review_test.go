package golive_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func set[T any](v T) web.Field[T] { return web.Field[T]{Set: true, Value: v} }

// patch changes the bundle's app.
func (b *bundle) patch(t *testing.T, c apps.Change) apps.App {
	t.Helper()
	app, err := b.apps.Patch(t.Context(), b.app.ID, c, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return app
}

// pending returns the ids of the requests to review.
func (b *bundle) pending(t *testing.T) []golive.Request {
	t.Helper()
	list, err := b.store.ListPending(t.Context(), "", 100)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func (b *bundle) get(t *testing.T) apps.App {
	t.Helper()
	app, err := b.apps.Get(t.Context(), b.app.ID)
	if err != nil {
		t.Fatal(err)
	}
	return app
}

func picture(t *testing.T, width int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, 64))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What the operator approves is what the request showed: each change of it makes another request.
func TestReviewIsOfWhatItShowed(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		shown, err := b.store.CreateRequest(t.Context(), b.app.ID)
		if err != nil || !strings.Contains(shown.Reviewed, "Reader") {
			t.Fatalf("%+v, %v", shown, err)
		}
		for what, change := range map[string]func(){
			"name":     func() { b.patch(t, apps.Change{Name: set("PayPal Wallet")}) },
			"redirect": func() { b.patch(t, apps.Change{RedirectURIs: set([]string{"https://evil.example/cb"})}) },
			"margin":   func() { b.patch(t, apps.Change{DevMarginRate: set(jsontext.Value("10"))}) },
			"logo": func() {
				if err := b.apps.SetLogo(t.Context(), b.app.ID, picture(t, 64)); err != nil {
					t.Fatal(err)
				}
			},
			"developer": func() {
				b.patch(t, apps.Change{ProfileChange: apps.ProfileChange{DeveloperName: set("OpenAI")}})
			},
		} {
			change()
			if err := b.approve(t.Context(), shown.ID); err == nil || !strings.Contains(err.Error(), "already") {
				t.Errorf("%s: approved what was not shown: %v", what, err)
			}
			list := b.pending(t)
			if len(list) != 1 || list[0].ID == shown.ID || list[0].To != apps.LimitedLive {
				t.Fatalf("%s: to review: %+v", what, list)
			}
			shown = list[0]
		}
		b.patch(t, apps.Change{PromptCache: set(false)}) // nobody reviews it
		if err := b.approve(t.Context(), shown.ID); err != nil {
			t.Fatal(err)
		}
		if app := b.get(t); app.Tier != apps.LimitedLive || app.Name != "PayPal Wallet" || len(b.pending(t)) != 0 {
			t.Errorf("%+v", app)
		}
	})
}

// A change past Follow, as of a node of an older version, is not approved either.
func TestReviewComparesAtTheEnd(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		r, err := b.store.CreateRequest(t.Context(), b.app.ID)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, d, `UPDATE apps SET name = 'PayPal Wallet'`)
		if err := b.approve(t.Context(), r.ID); err == nil || !strings.Contains(err.Error(), "has changed") {
			t.Errorf("approved: %v", err)
		}
	})
}

// A live app keeps its name, logo, developer, domain and redirect hosts until an operator has seen the change.
func TestLiveAppsAreReviewedAgain(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		first, err := b.store.CreateRequest(t.Context(), b.app.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.approve(t.Context(), first.ID); err != nil {
			t.Fatal(err)
		}
		uris := []string{"https://app.example.com/cb", "https://other.example/cb"}
		app := b.patch(t, apps.Change{
			Name:          set("Your Bank"),
			RedirectURIs:  set(uris),
			DevMarginRate: set(jsontext.Value("0.5")),
		})
		if app.Name != "Reader" || len(app.RedirectURIs) != 1 || app.DevMargin != money.One/2 ||
			*app.Proposed.Name != "Your Bank" {
			t.Errorf("changed at once: %+v", app)
		}
		if err := b.apps.SetLogo(t.Context(), b.app.ID, picture(t, 64)); err != nil {
			t.Fatal(err)
		}
		list := b.pending(t)
		if len(list) != 1 || !list[0].IsChange() || !strings.Contains(list[0].Reviewed, "Your Bank") ||
			!strings.Contains(list[0].Reviewed, "logo") || b.get(t).LogoHash != "" {
			t.Fatalf("to review: %+v", list)
		}
		shown := list[0]
		b.patch(t, apps.Change{Name: set("Your Other Bank")})
		if err := b.approve(t.Context(), shown.ID); err == nil {
			t.Error("approved what has changed since")
		}
		if err := b.approve(t.Context(), b.pending(t)[0].ID); err != nil {
			t.Fatal(err)
		}
		if app := b.get(t); app.Name != "Your Other Bank" || len(app.RedirectURIs) != 2 || app.LogoHash == "" ||
			len(app.Proposed.Members()) != 0 || app.Tier != apps.LimitedLive {
			t.Errorf("approved: %+v", app)
		}

		b.patch(t, apps.Change{Name: set("OpenAI")})
		err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := b.store.Reject(ctx, tx, b.pending(t)[0].ID, "It is not.")
			return err
		})
		if app := b.get(t); err != nil || app.Name != "Your Other Bank" || len(app.Proposed.Members()) != 0 {
			t.Errorf("rejected: %v, %+v", err, app)
		}

		b.patch(t, apps.Change{Name: set("Once more")})
		if b.patch(t, apps.Change{Name: set("Your Other Bank")}); len(b.pending(t)) != 0 {
			t.Error("a change that was withdrawn is to review")
		}
		if err := b.apps.SetLogo(t.Context(), b.app.ID, picture(t, 32)); err != nil {
			t.Fatal(err)
		}
		err = b.apps.RemoveLogo(t.Context(), b.app.ID)
		if app := b.get(t); err != nil || app.LogoHash != "" || len(b.pending(t)) != 0 {
			t.Errorf("a logo that was removed: %v, %+v", err, app)
		}
	})
}

// Changes during a review leave a bounded number of requests that they have replaced, and what an operator has decided.
func TestReplacedRequestsAreBounded(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d)
		refused, err := b.store.CreateRequest(t.Context(), b.app.ID)
		if err != nil {
			t.Fatal(err)
		}
		b.tx(t, func(ctx context.Context, tx *db.Tx) error {
			_, err := b.store.Reject(ctx, tx, refused.ID, "No privacy policy.")
			return err
		})
		if _, err := b.store.CreateRequest(t.Context(), b.app.ID); err != nil {
			t.Fatal(err)
		}
		for i := range 30 {
			b.patch(t, apps.Change{Name: set(fmt.Sprint("Reader ", i))})
		}
		list := b.pending(t)
		if len(list) != 1 || !strings.Contains(list[0].Reviewed, "Reader 29") {
			t.Errorf("to review: %+v", list)
		}
		if n := b.number(t, `SELECT COUNT(*) FROM golive_requests`); n != 1+20+1 {
			t.Errorf("%d requests, want a refused one, 20 that were replaced, and the pending one", n)
		}
		if r, err := b.store.Get(t.Context(), refused.ID); err != nil || r.Status != golive.Refused {
			t.Errorf("the operator's decision: %+v, %v", r, err)
		}
	})
}
