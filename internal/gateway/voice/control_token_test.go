package voice

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/db"
)

// TestControlEndsWithItsToken: a control channel whose token the app revokes, with its family, is closed before it
// obeys once more. A token that has expired keeps its channel.
func TestControlEndsWithItsToken(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		w := newWorld(t, e, "mock", "sandbox")
		tokens := &oauth.Store{DB: w.db, Ledger: w.book, Now: w.now}
		var stolen oauth.TokenResponse
		err := w.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
			stolen, err = tokens.IssueTokens(ctx, tx, w.conn, w.app, "")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		o := w.open(mini)
		control := w.dial(o.ControlURL, stolen.AccessToken)
		w.speak(o)
		control.wait("svc.session.started")
		w.exec(`DELETE FROM oauth_tokens WHERE expires_us = (SELECT expires_us FROM oauth_tokens
			WHERE kind = 'access' ORDER BY created_us DESC LIMIT 1)`) // as when it has expired
		control.send(`{"type":"response.create"}`)
		control.wait("svc.response.settled")
		before := w.get(o.ID)
		if err := tokens.RevokeToken(t.Context(), w.app, stolen.RefreshToken); err != nil {
			t.Fatal(err)
		}
		control.send(`{"type":"response.create"}`)
		if c := control.closed(); c != websocket.StatusPolicyViolation {
			t.Errorf("closed with %d", c)
		}
		if after := w.get(o.ID); after.ChargedMC != before.ChargedMC || after.Status != before.Status {
			t.Errorf("%+v before, %+v after", before, after)
		}
	})
}

// TestSilentControlEndsWithItsToken: the channel of an app that only listens is closed, too.
func TestSilentControlEndsWithItsToken(t *testing.T) {
	t.Parallel()
	var revoked atomic.Bool
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		go closeRevoked(ctx, &controlChannel{ws: ws}, 10*time.Millisecond,
			func(time.Duration) bool { return revoked.Swap(true) })
		_, _, _ = ws.Read(context.Background())
	}))
	t.Cleanup(node.Close)
	ws, _, err := websocket.Dial(t.Context(), node.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c := listenTo(t, ws).closed(); c != websocket.StatusPolicyViolation {
		t.Errorf("closed with %d", c)
	}
}
