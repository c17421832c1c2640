package inference

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/failures"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/pricing"
	"github.com/purserhq/purser/internal/models/provider"
)

// A Recorder is a provider that keeps a record of what a call used. GetStoredUsage finds it by
// the provider's id of the response, or, if that is empty, by the id of our request.
// False means that it is not there yet: it may still come.
type Recorder interface {
	GetStoredUsage(ctx context.Context, responseID, requestID string) (*provider.Usage, bool, error)
}

// Times of asking for records. A batch takes less time than its lease, so that a pending
// call is asked for by one node: recordTimeout × recordBatch ÷ recordParallel.
const (
	recordAwaited  = 10 * time.Minute // after that the call is charged as an estimate
	recordLease    = time.Minute
	recordTimeout  = 10 * time.Second
	recordBatch    = 32
	recordParallel = 8
)

// recordPause is for how long a provider is not asked again that had no record at the
// n-th time.
func recordPause(n int64) time.Duration {
	if n <= 1 {
		return 15 * time.Second // the first time was five seconds after the response
	}
	return time.Minute
}

// recorder returns the provider that keeps a record of the attempt, or nil.
func (a *attempt) recorder() Recorder {
	// The records of a developer's key, and those of the Responses API, cannot be asked for.
	if a.developerPays || a.who.App.ProviderMode == apps.Mock || a.request.Facts.Responses {
		return nil
	}
	return a.h.Recorders[a.Model.Provider]
}

// deferSettlement leaves the attempt pending, and reports whether it could. If the hold
// has ended meanwhile, the attempt has to be settled.
func (a *attempt) deferSettlement(ctx context.Context, end *streamEnd, body []byte) (bool, error) {
	c := rules.Defer{
		Call:     a.held,
		Attempt:  a.number,
		Provider: a.Model.Provider,
		RecordID: end.recordID,
		Delivery: end.delivery,
		Response: a.storeResponse(ctx, body),

		DeliveredTokens: end.output(),
	}
	r, err := persist(ctx, func(ctx context.Context) (rules.Result, error) { return a.h.Ledger.Do(ctx, c) })
	if r.Unstored {
		a.dropResponse(ctx)
	}
	return err == nil && r.Outcome == rules.Applied, err
}

// pendingEntry is what the end of a pending call needs of its ledger row, which does not
// exist yet.
func pendingEntry(requestID, model string, at time.Time) rules.Entry {
	return rules.Entry{
		ID:        id.ReplacePrefix(requestID, id.Request, id.Ledger),
		Type:      rules.EntrySpend,
		Model:     model,
		CreatedUS: at.UnixMicro(),
	}
}

// replayPending answers a key whose call is pending: with what was delivered, and that
// the charge is not known yet.
func (h *Handler) replayPending(
	ctx context.Context, w http.ResponseWriter, c *call, running *runningCall, requestID string,
) error {
	res, err := h.loadPendingResult(ctx, c.plan, requestID, c.seat.reserveAnswer)
	if err != nil {
		return err
	}
	return h.writeReplay(w, c, running, &res)
}

// loadPendingResult reads a pending call from the database. reserve is that of loadResult.
func (h *Handler) loadPendingResult(
	ctx context.Context, q *plan.Plan, requestID string, reserve func(int64) error,
) (result, error) {
	stored, err := store.GetStoredResponse(ctx, h.DB, requestID)
	if errors.Is(err, sql.ErrNoRows) {
		return result{}, apierr.IdempotencyKeyReused.Errorf(
			"the response to this key is not stored; it was delivered once, as request %s", requestID)
	} else if err != nil {
		return result{}, err
	}
	body, err := unpackResponse(stored, reserve)
	_, end := splitStored(body)
	return result{
		entry:   pendingEntry(requestID, q.Model.ID, id.Time(requestID)),
		body:    body,
		usage:   end,
		pending: true,
	}, err
}

// ResolvePending asks for the records of pending calls that are due, and settles the
// calls whose record it finds and those that have waited for recordAwaited. It returns
// how many it settled.
func (h *Handler) ResolvePending(ctx context.Context) (int, error) {
	due, err := h.Node.ClaimPendingCalls(ctx, recordLease, recordBatch)
	if err != nil {
		return 0, err
	}
	var settled atomic.Int64
	var group errgroup.Group
	group.SetLimit(recordParallel)
	for _, d := range due {
		group.Go(func() error {
			done, err := h.resolvePendingCall(ctx, d)
			if done {
				settled.Add(1)
			}
			return err
		})
	}
	err = group.Wait()
	return int(settled.Load()), err
}

// resolvePendingCall reports whether it has settled a call.
func (h *Handler) resolvePendingCall(ctx context.Context, d store.PendingCall) (bool, error) {
	if d.Provider == policy.OwnWork {
		return h.endOwnWork(ctx, d)
	}
	usage, found := h.findRecord(ctx, d)
	if ctx.Err() != nil {
		return false, nil // this node stops: another one asks when our lease has ended
	}
	waits := h.Now().UnixMicro()-d.SinceUS < recordAwaited.Microseconds() || !h.DB.IsClockSteady()
	if !found && waits {
		return false, h.Node.PostponePendingCall(ctx, d.RequestID, recordPause(d.Tries))
	}
	output := d.DeliveredTokens
	if usage == nil && output == 0 { // a call that an earlier version has deferred
		var err error
		if output, err = h.countDelivered(ctx, d.RequestID); err != nil {
			return false, err
		}
	}
	c, err := settlementOf(&d.HoldRow, usage, output)
	if err != nil {
		return false, err
	}
	c.Delivery = d.Delivery
	if app, err := h.Apps.Get(ctx, d.AppID); err == nil {
		c.Risk = h.Policies.At(h.Now()).RiskOf(&app)
	}
	_, err = h.commitSettlement(ctx, c)
	h.Log.InfoContext(ctx, "pending call settled", "request_id", d.RequestID, "settlement", c.Settlement,
		"tries", d.Tries, "user_charge_mc", c.Charge.UserChargeMC)
	return err == nil, err
}

// endOwnWork releases the hold of an app's own work when its time is over, and reports whether it did.
func (h *Handler) endOwnWork(ctx context.Context, d store.PendingCall) (bool, error) {
	age := time.Duration(h.Now().UnixMicro()-d.SinceUS) * time.Microsecond
	rest := policy.WorkLifetime - age
	if rest <= 0 && !h.DB.IsClockSteady() {
		rest = db.ClockWait
	}
	if rest > 0 {
		return false, h.Node.PostponePendingCall(ctx, d.RequestID, rest)
	}
	r, err := h.Ledger.Do(ctx, rules.Release{Call: d.Call, Attempt: d.Attempt, Pending: true})
	return err == nil && r.Outcome == rules.Applied, err
}

// countDelivered returns how many tokens the stored part of a pending call has; 0 if it was too long to be stored.
func (h *Handler) countDelivered(ctx context.Context, requestID string) (int64, error) {
	stored, err := store.GetStoredResponse(ctx, h.DB, requestID)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	body, err := unpackResponse(stored, func(int64) error { return nil })
	return countText(formatOf(body), body), err
}

// findRecord asks for the record of a call. A record whose usage cannot be billed will
// not improve: it is found, without usage.
func (h *Handler) findRecord(ctx context.Context, d store.PendingCall) (usage *provider.Usage, found bool) {
	recorder := h.Recorders[d.Provider]
	if recorder == nil {
		return nil, false // the operator has switched records off, perhaps not on every node
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	usage, found, err := recorder.GetStoredUsage(ctx, d.RecordID, d.RequestID)
	if err != nil {
		h.Log.WarnContext(ctx, "provider record not read", "request_id", d.RequestID, "provider", d.Provider,
			"tries", d.Tries, "error", err)
		return nil, false
	}
	if !found || usage == nil {
		return nil, false
	}
	t, err := policy.ParseTerms(d.Terms)
	contextTokens := int64(money.Max) // of a model that is no longer offered
	if m, _, ok := h.Catalog.Current().Find(d.Model, h.Now()); ok {
		contextTokens = m.ContextTokens
	}
	if err != nil || !pricing.Usable(*usage, t.MaxTokens, pricing.MaxInput(t.InputTokens, contextTokens)) {
		h.Log.ErrorContext(ctx, "provider record implausible", "request_id", d.RequestID,
			"usage", receipts.EncodeUsage(*usage), "error", err)
		return nil, true
	}
	h.noteUsageSum(ctx, d.RequestID, d.Model, usage)
	return usage, true
}

// settlementOf returns the settlement of a call that has no leader any more: by the
// provider's usage, or, if that is nil, as an estimate of the output tokens that were delivered.
func settlementOf(row *rules.HoldRow, usage *provider.Usage, output int64) (rules.Settle, error) {
	t, err := policy.ParseTerms(row.Terms)
	if err != nil {
		return rules.Settle{}, err
	}
	rates, err := catalog.ParseSnapshot(t.Rates)
	if err != nil {
		return rules.Settle{}, err
	}
	c := rules.Settle{
		Call:       row.Call,
		Attempt:    row.Attempt,
		Settlement: rules.Settled,
		Receipt:    receipts.JSON,
	}
	var amounts pricing.Amounts
	if usage != nil {
		amounts, err = pricing.Charge(rates, *usage, t.Margin, t.Fee)
	} else {
		usage = &provider.Usage{Input: t.EstimateTokens(), Output: min(output, t.MaxTokens)}
		c.Settlement = rules.Estimated
		amounts, err = pricing.ChargeEstimate(rates, usage.Input, usage.Output, t.Margin, t.Fee, row.HoldMC)
	}
	c.Charge, c.Usage = rules.Amounts(amounts), storedUsage(rates, *usage, t.Margin, t.Fee)
	return c, err
}

// recordOf returns which provider keeps a record of an attempt whose node died, and the
// provider's id of the response, which its chunks carry. A name of "" means none does.
func (h *Handler) recordOf(ctx context.Context, row *rules.HoldRow, frames []byte) (name, recordID string, err error) {
	m, _, ok := h.Catalog.Current().Find(row.Model, h.Now())
	if !ok || h.Recorders[m.Provider] == nil {
		return "", "", nil
	}
	app, err := h.Apps.Get(ctx, row.AppID)
	if err != nil || app.ProviderMode == apps.Mock {
		return "", "", err
	}
	return m.Provider, strings.Trim(findMember(frames, `"id":`, ""), `"`), nil
}

// brokenOff returns what a client reads after the frames of a cut stream.
func brokenOff(providerName, connectionID string, cause error, pending bool) *apierr.Error {
	f := failures.Classify(providerName, cause)
	f.Retry = false // the key is billed: it only replays
	what := f.Provider + " broke off"
	if f.Unusable != "" {
		what = f.Sentence()
	}
	e := apierr.ProviderError.On(connectionID, "%s; %s", what, chargeOfPart(pending))
	e.Details = f.Details()
	return e
}

// interrupted returns the end of a stream whose node stopped or was taken for dead. charge says how it is charged.
func interrupted(connectionID, charge string) *apierr.Error {
	return apierr.Unavailable.On(connectionID, "the service was interrupted while it sent this response; %s", charge)
}

// chargeOfStored says how a key is charged whose stored response is not what this client got. It is the part that was
// delivered, or the whole response of another attempt.
func chargeOfStored(r *result) string {
	if !r.pending && r.entry.Settlement == rules.Settled {
		return "the key is charged for the complete response of a later attempt, which a retry returns"
	}
	return chargeOfPart(r.pending)
}

// chargeOfPart says how the delivered part of a stream is charged.
func chargeOfPart(pending bool) string {
	if pending {
		return "the charge follows from the provider's record"
	}
	return "what was delivered is billed as an estimate"
}
