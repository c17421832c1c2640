package stripeapi_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/stripe"
	"github.com/purserhq/purser/internal/people/stripeapi"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A remote is what Stripe answers to one request.
type remote struct {
	*stripeapi.Requests
	t       *testing.T
	ahead   time.Duration
	log     bytes.Buffer
	keys    []string // that came
	answer  error    // to the next
	lookUp  error
	hasIt   bool
	terms   stripeapi.Outcome
	judged  *stripeapi.Answer // what Judge says; nil = what it is asked about
	between func()            // runs before the terms are read
	during  func()            // runs while Stripe is asked
	crash   error             // instead of the record of an end
	ends    []stripeapi.Outcome
}

func newRemote(t *testing.T, d *db.DB) *remote {
	r := &remote{t: t, terms: stripeapi.Wanted, between: func() {}, during: func() {}}
	r.Requests = &stripeapi.Requests{
		DB:  d,
		Log: slog.New(slog.NewTextHandler(&r.log, nil)),
		Now: func() time.Time { return time.Unix(1_800_000_000, 0).Add(r.ahead) },
	}
	return r
}

func (r *remote) request() stripeapi.Request {
	return stripeapi.Request{
		Kind: stripeapi.Charge,
		ID:   "top_1",
		Find: func(context.Context) (bool, error) { return r.hasIt, r.lookUp },
		Check: func(context.Context) (stripeapi.Outcome, error) {
			r.between()
			return r.terms, nil
		},
		Create: func(_ context.Context, key string) error {
			r.keys = append(r.keys, key)
			r.during()
			return r.answer
		},
		Judge: func(_ context.Context, a stripeapi.Answer) (stripeapi.Answer, error) {
			if r.judged != nil {
				a = *r.judged
			}
			return a, nil
		},
		End: func(ctx context.Context, a stripeapi.Answer, forget stripeapi.Forget) error {
			if r.crash != nil {
				return r.crash
			}
			err := r.DB.InTx(ctx, forget)
			if err == nil {
				r.ends = append(r.ends, a.Outcome)
			}
			return err
		},
	}
}

// wants carries the request out, and compares the outcome and the keys that have come so far.
func (r *remote) wants(outcome stripeapi.Outcome, keys ...string) {
	r.t.Helper()
	a, err := r.Do(r.t.Context(), r.request())
	if err != nil || a.Outcome != outcome || !slices.Equal(r.keys, keys) {
		r.t.Fatalf("%+v, %v, keys %q; want %q, %q", a, err, r.keys, outcome, keys)
	}
}

// stored is the error with a status that Stripe has stored, as it repeats it.
func stored(status int) error {
	return &stripe.Error{Status: status, Type: "api_error", Message: "An error occurred.", Replayed: true}
}

func refusal(status int, kind string) error {
	return &stripe.Error{Status: status, Type: kind, Message: "No."}
}

// TestNewAttempts gives a request another key only after Stripe has repeated an error and has nothing for an hour.
func TestNewAttempts(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		r := newRemote(t, d)
		r.answer = io.ErrUnexpectedEOF
		r.wants(stripeapi.Unknown, "top_1")
		r.ahead += 30 * time.Hour // Stripe has forgotten the key
		r.wants(stripeapi.Unknown, "top_1", "top_1")
		r.answer = stored(500)
		r.wants(stripeapi.Unknown, "top_1", "top_1", "top_1")
		r.ahead += 59 * time.Minute
		r.wants(stripeapi.Unknown, "top_1", "top_1", "top_1") // not asked
		r.ahead += 2 * time.Minute
		r.lookUp = errors.New("cut")
		r.wants(stripeapi.Unknown, "top_1", "top_1", "top_1")
		r.lookUp, r.answer = nil, nil
		r.wants(stripeapi.Done, "top_1", "top_1", "top_1", "top_1:2")
	})
}

// TestEndsOfARequest ends a request only by what ends it.
func TestEndsOfARequest(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		r := newRemote(t, d)
		for _, status := range []int{400, 401, 403, 429} {
			r.answer = refusal(status, "invalid_request_error")
			r.keys = nil
			r.wants(stripeapi.Ours, "top_1")
		}
		if err := r.ReportOverdue(t.Context()); err != nil || strings.Contains(r.log.String(), "for an hour") {
			t.Errorf("%v\n%s", err, r.log.String())
		}
		r.ahead += 61 * time.Minute
		if err := r.ReportOverdue(t.Context()); err != nil || !strings.Contains(r.log.String(), "for an hour") {
			t.Errorf("no alarm after an hour: %v\n%s", err, r.log.String())
		}
		r.terms = stripeapi.Postponed
		r.wants(stripeapi.Postponed, "top_1")
		r.terms = stripeapi.Unwanted
		r.lookUp = refusal(404, "card_error") // a look-up refuses nothing
		r.wants(stripeapi.Unknown, "top_1")
		r.lookUp = refusal(429, "invalid_request_error") // it says nothing of what an earlier try has done
		r.judged = &stripeapi.Answer{Outcome: stripeapi.Refused}
		r.wants(stripeapi.Ours, "top_1")
		r.lookUp, r.judged = nil, nil
		r.wants(stripeapi.Unwanted, "top_1")
		r.terms, r.answer, r.keys = stripeapi.Wanted, refusal(402, "card_error"), nil
		r.wants(stripeapi.Refused, "top_1")
		r.hasIt = true
		r.wants(stripeapi.Done, "top_1")
		r.log.Reset()
		r.ahead += 100 * time.Hour
		if err := r.ReportOverdue(t.Context()); err != nil || r.log.Len() > 0 {
			t.Errorf("what has ended waits: %v\n%s", err, r.log.String())
		}
	})
}

// TestClaims lets a second node take a request over whose first node pauses: the first does not ask Stripe any more.
func TestClaims(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		r, other := newRemote(t, d), newRemote(t, d)
		r.between = func() {
			if _, err := other.Do(t.Context(), other.request()); !errors.Is(err, stripeapi.ErrClaimed) {
				t.Errorf("claimed twice: %v", err)
			}
			other.ahead = 6 * time.Minute
			other.answer = io.ErrUnexpectedEOF
			other.wants(stripeapi.Unknown, "top_1")
		}
		if a, err := r.Do(t.Context(), r.request()); !errors.Is(err, stripeapi.ErrClaimed) || len(r.keys) > 0 {
			t.Errorf("%+v, %v, keys %q", a, err, r.keys)
		}
		other.wants(stripeapi.Unknown, "top_1", "top_1") // the claim of the first is over
	})
}

// TestClockThatWasAhead: a node whose clock is ahead claims a request and dies, or notes that Stripe has repeated an
// error. Once the clock is right, the request goes on as if that had happened now.
func TestClockThatWasAhead(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{time.Hour, 365 * 24 * time.Hour} {
		dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
			r := newRemote(t, d)
			_, err := d.ExecContext(t.Context(), `INSERT INTO stripe_requests (kind, id, attempt, fence, claimed_us,
				outcome, text) VALUES ($1, 'top_1', 1, 1, $2, '', '')`, string(stripeapi.Charge),
				r.Now().Add(ahead+5*time.Minute).UnixMicro())
			if err != nil {
				t.Fatal(err)
			}
			r.ahead, r.answer = ahead, stored(500)
			if a, err := r.Do(t.Context(), r.request()); !errors.Is(err, stripeapi.ErrClaimed) {
				t.Errorf("%+v, %v", a, err)
			}
			r.ahead += 6 * time.Minute
			r.wants(stripeapi.Unknown, "top_1")
			_, err = d.ExecContext(t.Context(), `UPDATE stripe_requests SET claimed_us = $1`,
				r.Now().Add(5*time.Minute).UnixMicro())
			if err != nil {
				t.Fatal(err)
			}
			r.ahead, r.answer = 0, nil
			r.wants(stripeapi.Unknown, "top_1")
			r.ahead = 59 * time.Minute
			r.wants(stripeapi.Unknown, "top_1")
			r.ahead = 61 * time.Minute
			r.wants(stripeapi.Done, "top_1", "top_1:2")
		})
	}
}

// TestEndIsRecordedOnce ends the node between a refusal and its record: the next node goes on with the same attempt.
// The refusal of a node that has lost its claim is not recorded, because another one may be asking Stripe; that Stripe
// has done it is.
func TestEndIsRecordedOnce(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		r, other := newRemote(t, d), newRemote(t, d)
		r.answer = stored(500)
		r.wants(stripeapi.Unknown, "top_1")
		r.ahead += 61 * time.Minute
		r.answer, r.crash = refusal(402, "card_error"), errors.New("crash")
		if a, err := r.Do(t.Context(), r.request()); !errors.Is(err, r.crash) {
			t.Errorf("%+v, %v", a, err)
		}
		r.crash = nil
		r.wants(stripeapi.Refused, "top_1", "top_1:2", "top_1:2")
		for _, answer := range []error{refusal(402, "card_error"), nil} {
			r.ends, other.ends, r.answer = nil, nil, answer
			r.during = func() {
				other.ahead, other.answer = r.ahead+6*time.Minute, io.ErrUnexpectedEOF
				if a, err := other.Do(t.Context(), other.request()); err != nil || a.Outcome != stripeapi.Unknown {
					t.Errorf("%+v, %v", a, err)
				}
			}
			_, err := r.Do(t.Context(), r.request())
			if lost := answer != nil; errors.Is(err, stripeapi.ErrClaimed) != lost || len(r.ends) == 1 == lost {
				t.Errorf("after %v: %v, ends %q", answer, err, r.ends)
			}
			r.ahead += time.Hour
		}
	})
}

// TestMake makes what moves no money under another key as soon as Stripe repeats an error, or when it is gone.
func TestMake(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		r := newRemote(t, d)
		answers := []error{io.ErrUnexpectedEOF, stored(500), nil, nil,
			refusal(400, "idempotency_error"), nil, nil}
		makeIt := func() error {
			return r.Make(t.Context(), stripeapi.Customer, "acc_1", "customer:", func(key string) error {
				r.keys = append(r.keys, key)
				return answers[len(r.keys)-1]
			})
		}
		if err := makeIt(); err == nil {
			t.Error("a cut request succeeds")
		}
		for range 3 {
			if err := makeIt(); err != nil {
				t.Error(err)
			}
		}
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return r.Renew(ctx, tx, stripeapi.Customer, "acc_1")
		})
		if err = errors.Join(err, makeIt()); err != nil {
			t.Error(err)
		}
		want := []string{"customer:acc_1", "customer:acc_1", "customer:acc_1:2", "customer:acc_1:2", "customer:acc_1:2",
			"customer:acc_1:3", "customer:acc_1:4"}
		if !slices.Equal(r.keys, want) {
			t.Errorf("%q, want %q", r.keys, want)
		}
	})
}
