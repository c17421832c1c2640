package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestSlowLargeResponses: while PostgreSQL takes minutes for each large response, the calls of others are settled, and
// so are those that it is the response of. They are not stored, and the next ones are not tried for a while.
func TestSlowLargeResponses(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.Postgres)
	for _, text := range []string{
		`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(600); RETURN NEW; END'`,
		fmt.Sprintf(`CREATE TRIGGER slow BEFORE INSERT ON stored_responses FOR EACH ROW WHEN (octet_length(NEW.body)
			> %d)
			EXECUTE FUNCTION slow()`, maxBatchBytes),
	} {
		if _, err := d.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	var later atomic.Int64 // pauses
	w := NewWriter(d, func() time.Time { return time.Now().Add(time.Duration(later.Load()) * largePause) })
	w.largeTimeout = 100 * time.Millisecond
	runWriter(t, w)
	var others, large sync.WaitGroup
	var heavy, light []rules.Settle // all are held before the first one is slow
	for i := range 8 {
		heavy = append(heavy, fundedCall(t, w, fmt.Sprint("L", i), maxBatchBytes+1))
		light = append(light, fundedCall(t, w, fmt.Sprint("S", i), 100))
	}
	for _, settle := range heavy {
		large.Go(func() {
			if r, err := persist(t, w, settle); err != nil || r.Outcome == rules.Applied && !r.Unstored {
				t.Errorf("settle with a large response: %+v, %v", r, err)
			}
		})
	}
	for _, settle := range light {
		others.Go(func() {
			if r, err := persist(t, w, settle); err != nil || r.Unstored {
				t.Errorf("settle of another: %+v, %v", r, err)
			}
		})
	}
	others.Wait()
	large.Wait()
	if _, err := GetStoredResponse(t.Context(), d, "req_L0k"); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("the large response: %v", err)
	}
	if _, err := GetStoredResponse(t.Context(), d, "req_S0k"); err != nil {
		t.Errorf("the response of another: %v", err)
	}
	if !w.AcceptsHolds() {
		t.Error("the writer takes the database for lost")
	}

	if _, err := d.ExecContext(t.Context(), `DROP TRIGGER slow ON stored_responses`); err != nil {
		t.Fatal(err)
	}
	for i := range 100 { // a busy machine may need longer than the test allows
		later.Add(1)
		_, err := w.Do(t.Context(), fundedCall(t, w, fmt.Sprint("again", i), maxBatchBytes+1))
		if err != nil && !db.IsUnavailable(err) {
			t.Fatal(err)
		}
		if _, err := GetStoredResponse(t.Context(), d, fmt.Sprint("req_again", i, "k")); err == nil {
			return
		}
	}
	t.Error("no large response is stored after the pause")
}

// TestLargeResponsesThatFail: a conflict says nothing about the response, which is stored by the next try. What
// PostgreSQL does not take is not stored, and its call is settled.
func TestLargeResponsesThatFail(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, state string
		isStored    bool
	}{
		{"conflict", "40001", true},
		{"too much", "54000", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := dbtest.Open(t, db.Postgres)
			for _, text := range []string{
				`CREATE SEQUENCE tries`,
				`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF nextval(''tries'') = 1 THEN
					RAISE EXCEPTION ''no'' USING ERRCODE = ''` + c.state + `''; END IF; RETURN NEW; END'`,
				fmt.Sprintf(`CREATE TRIGGER fail BEFORE INSERT ON stored_responses FOR EACH ROW
					WHEN (octet_length(NEW.body) > %d) EXECUTE FUNCTION fail()`, maxBatchBytes),
			} {
				if _, err := d.ExecContext(t.Context(), text); err != nil {
					t.Fatal(err)
				}
			}
			w := writers(t, d, 1)[0]
			w.largeTimeout = time.Hour // the machine may be busy
			r := must(t)(persist(t, w, fundedCall(t, w, "C", maxBatchBytes+1)))
			if r.Outcome == rules.Applied && r.Unstored == c.isStored {
				t.Errorf("%+v", r)
			}
			if _, err := GetStoredResponse(t.Context(), d, "req_Ck"); (err == nil) != c.isStored {
				t.Errorf("the response: %v", err)
			}
		})
	}
}

// TestBatchesAreBounded: a batch has one large response, or as many bytes of others as one may have.
func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := writers(t, d, 1)[0]
		w.largeTimeout = time.Hour // the machine may be busy
		var settled sync.WaitGroup
		for i := range 40 {
			size := 100
			switch i % 4 {
			case 1:
				size = maxBatchBytes + 1
			case 2:
				size = maxBatchBytes / 2
			}
			name := fmt.Sprint("C", i)
			settle := fundedCall(t, w, name, size)
			settled.Go(func() {
				if r, err := persist(t, w, settle); err != nil || r.Unstored {
					t.Errorf("settle with %d bytes: %+v, %v", size, r, err)
				}
				if a, err := GetStoredResponse(t.Context(), d, "req_"+name+"k"); err != nil || len(a.Body) != size {
					t.Errorf("%d bytes are stored as %d: %v", size, len(a.Body), err)
				}
			})
		}
		settled.Wait()
	})
	small, half, large := &job{}, &job{stored: maxBatchBytes / 2}, &job{stored: maxBatchBytes + 1}
	for _, c := range []struct {
		jobs []*job
		want int
	}{
		{[]*job{small, small, small}, 3},
		{[]*job{half, half, small, half}, 3},
		{[]*job{large, small}, 0},
		{[]*job{small, large}, 1},
		{[]*job{half, half, half}, 2},
	} {
		if got := countFitting(c.jobs); got != c.want {
			t.Errorf("%d of %d jobs fit, want %d", got, len(c.jobs), c.want)
		}
	}
}

// runWriter runs w until the test ends.
func runWriter(t *testing.T, w *Writer) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// persist gives w a command until it is answered, as callers do: a busy machine may need longer than one may wait.
func persist(t *testing.T, w *Writer, c rules.Command) (r rules.Result, err error) {
	for range 100 {
		if r, err = w.Do(t.Context(), c); !db.IsUnavailable(err) {
			return r, err
		}
	}
	return r, err
}

// fundedCall returns the settlement of a held call of a new account and connection of this name, with so many bytes of
// response.
func fundedCall(t *testing.T, w *Writer, name string, bytesOfResponse int) rules.Settle {
	t.Helper()
	must(t)(w.Do(t.Context(), rules.TopUp{AccountID: "A" + name, Sandbox: true, AmountMC: 1000}))
	must(t)(w.Do(t.Context(), rules.Connect{
		Sandbox:      true,
		ConnectionID: name,
		AppID:        "p",
		AccountID:    "A" + name,
		RequestedMC:  1000,
	}))
	hold := rules.Hold{Call: callOf(name, "A"+name, "p", "k", 10), Claim: name}
	must(t)(w.Do(t.Context(), hold))
	return rules.Settle{
		Call:       hold.Call,
		Attempt:    1,
		Charge:     rules.Amounts{ProviderCostMC: 7, UserChargeMC: 7},
		Settlement: rules.Settled,
		Usage:      rules.Usage{JSON: "{}"},
		Response:   &rules.StoredResponse{Encoding: "raw", Body: bytes.Repeat([]byte("x"), bytesOfResponse)},
	}
}
