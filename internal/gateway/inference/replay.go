package inference

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/provider"
)

// join answers a copy of a call that runs on this node: it reads along from the
// first chunk, and gets the same end (F-36, F-43).
func (h *Handler) join(w http.ResponseWriter, r *http.Request, q *plan, c *running) error {
	w.Header().Set("Idempotent-Replayed", "true")
	h.drains.join(c)
	defer h.drains.leave(c)
	if !q.Stream {
		v, err := c.read(r.Context(), math.MaxInt)
		if err != nil {
			return err
		}
		return h.conclude(w, q, nil, &v)
	}
	out := newSSE(w)
	for pos := 0; ; {
		v, err := c.read(r.Context(), pos)
		if err != nil {
			return web.AlreadyReported(err) // the copy's client has gone; the call goes on
		}
		if v.lost {
			return tooLong(q, out)
		}
		out.write(v.frames)
		out.flush()
		pos += len(v.frames)
		if v.ended {
			return h.conclude(w, q, out, &v)
		}
	}
}

func tooLong(q *plan, out *sse) error {
	err := apierr.IdempotencyKeyReused.Errorf("the response to this key was too large to store; use a new key")
	if out.begun {
		out.write(errorFrame(err))
		return web.AlreadyReported(err)
	}
	return err
}

// conclude gives a joiner the end of the call it joined.
func (h *Handler) conclude(w http.ResponseWriter, q *plan, out *sse, v *view) error {
	if v.err != nil && (out == nil || !out.begun) {
		w.Header().Del("Idempotent-Replayed")
		return again(v.err)
	}
	if out == nil {
		w.Header().Set("X-Request-Id", v.result.entry.RequestID())
		return writeAnswer(w, withBlock(v.result.body, &v.result.entry))
	}
	if v.err != nil {
		out.write(errorFrame(apierr.ProviderError.Errorf("the provider broke off; nothing was billed")))
		out.write(done)
		return nil
	}
	return ending(q, out, &v.result)
}

// ending writes a stream's last events.
func ending(q *plan, out *sse, r *result) error {
	if !q.route.chat {
		out.write(r.usage)
	}
	tail, err := finale(q, r)
	if err != nil {
		return err
	}
	out.write(tail)
	return nil
}

// again copies an error for another request: each request's own is written to.
func again(err error) error {
	var e *apierr.Error
	if errors.As(err, &e) {
		c := *e
		return &c
	}
	return err
}

// replay answers a key that is in the ledger: same status, same body, no charge.
func (h *Handler) replay(w http.ResponseWriter, r *http.Request, q *plan, c *running, entryID string) error {
	res, err := h.recall(context.WithoutCancel(r.Context()), q, entryID) // copies wait for it too
	if err != nil {
		return err
	}
	return h.repeat(w, q, c, &res)
}

// repeat sends a whole stored answer again.
func (h *Handler) repeat(w http.ResponseWriter, q *plan, c *running, res *result) error {
	c.settled(*res)
	w.Header().Set("Idempotent-Replayed", "true")
	w.Header().Set("X-Request-Id", res.entry.RequestID())
	if !q.Stream {
		return writeAnswer(w, withBlock(res.body, &res.entry))
	}
	frames := res.body[:len(res.body)-len(res.usage)]
	c.push(frames) // for those who joined meanwhile
	out := newSSE(w)
	out.write(frames)
	return ending(q, out, res)
}

// recall reads a billed call back.
func (h *Handler) recall(ctx context.Context, q *plan, entryID string) (result, error) {
	entry, err := store.GetEntry(ctx, h.DB, entryID)
	if err != nil {
		return result{}, err
	}
	answer, err := store.GetStoredResponse(ctx, h.DB, entry.RequestID())
	if errors.Is(err, sql.ErrNoRows) {
		return result{}, apierr.IdempotencyKeyReused.On(entry.ConnectionID, "the response to this key is no longer stored; it was billed once, as request %s", entry.RequestID())
	} else if err != nil {
		return result{}, err
	}
	body, err := unpack(answer)
	if err != nil {
		return result{}, err
	}
	res := result{entry: entry, body: body}
	if q.Stream {
		res.usage = provider.LastUsageFrame(body)
	}
	return res, nil
}

// follow answers a copy of a call that runs on another node: it reads the
// checkpoints as they come, then the end from the ledger (F-37).
func (h *Handler) follow(w http.ResponseWriter, r *http.Request, q *plan, c *running, held rules.Result) error {
	out := newSSE(w)
	// Copies on this node read along, so it goes on when its own client has gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), maxCall)
	defer cancel()
	w.Header().Set("Idempotent-Replayed", "true")
	w.Header().Set("X-Request-Id", held.RequestID)
	sent, next := 0, int64(0)
	for pause := 20 * time.Millisecond; ; pause = min(pause*3/2, 250*time.Millisecond) {
		if q.Stream {
			body, n, err := store.GetCheckpoints(ctx, h.DB, held.RequestID, held.Attempt, next)
			if err != nil {
				return err
			}
			out.write(body)
			out.flush()
			c.push(body) // for copies on this node
			sent, next = sent+len(body), n
		}
		row, err := store.GetHold(ctx, h.DB, c.key)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			res, err := h.recall(ctx, q, id.ReplacePrefix(held.RequestID, id.Request, id.Ledger))
			if err != nil {
				return err
			}
			return h.followed(w, q, c, out, sent, &res)
		case err == nil && row.State == rules.Pending:
			res, err := h.recallPending(ctx, q, held.RequestID)
			if err != nil {
				return err
			}
			return h.followed(w, q, c, out, sent, &res)
		case err != nil:
			return err
		case row.State == rules.Failed, row.Attempt != held.Attempt:
			w.Header().Del("Idempotent-Replayed")
			if out.begun {
				broke := apierr.ProviderError.Errorf("the provider broke off; nothing was billed")
				out.write(errorFrame(broke))
				out.write(done)
				return web.AlreadyReported(broke)
			}
			return apierr.ProviderError.On(c.key.ConnectionID, "the provider failed; nothing was billed, retry with the same Idempotency-Key")
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return web.AlreadyReported(ctx.Err())
		}
	}
}

// followed sends what of an ended call its follower has not seen.
func (h *Handler) followed(w http.ResponseWriter, q *plan, c *running, out *sse, sent int, res *result) error {
	c.settled(*res)
	if !q.Stream {
		return writeAnswer(w, withBlock(res.body, &res.entry))
	}
	if frames := res.body[:len(res.body)-len(res.usage)]; sent < len(frames) {
		out.write(frames[sent:])
		c.push(frames[sent:])
	}
	return ending(q, out, res)
}
