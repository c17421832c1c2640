package inference

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/pricing"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/tokens"
)

// A Recorder is a provider that can say later what a call used. It finds the
// record by its own id of the answer, or if that is empty by our request's. False
// means not yet; the record may still come.
type Recorder interface {
	Stored(ctx context.Context, completionID, requestID string) (*provider.Usage, bool, error)
}

// Asking for records. A batch takes less time than its lease, so that a call has
// one asker (askTimeout × askBatch ÷ askAtOnce).
const (
	recordAwaited = 10 * time.Minute // after that the call is billed as an estimate
	askLease      = time.Minute
	askTimeout    = 10 * time.Second
	askBatch      = 32
	askAtOnce     = 8
)

// pause is how long a provider is left alone that had no record at the n-th try.
func pause(n int64) time.Duration {
	if n <= 1 {
		return 15 * time.Second // the first try was five seconds after the answer
	}
	return time.Minute
}

// recorder returns who will know what the attempt used, or nil.
func (a *attempt) recorder() Recorder {
	if a.ownKey || a.who.App.ProviderMode == "mock" || a.Facts.Responses { // nothing is stored there, or we cannot ask
		return nil
	}
	return a.h.Records[a.model.Provider]
}

// usable says whether the provider's usage can be billed.
func (a *attempt) usable(u *provider.Usage) bool {
	return u != nil && pricing.Usable(*u, a.MaxTokens, a.model.ContextTokens)
}

// postpone leaves the attempt pending and says whether it could. Where its hold
// has ended it is settled like any other late one.
func (a *attempt) postpone(ctx context.Context, record string, body []byte) (bool, error) {
	c := rules.Defer{Call: a.call, Attempt: a.number, Provider: a.model.Provider, RecordID: record}
	if body != nil {
		c.Response = keep(body)
	}
	r, err := persist(ctx, func(ctx context.Context) (rules.Result, error) { return a.h.Ledger.Do(ctx, c) })
	return err == nil && r.Outcome == rules.Applied, err
}

// unsettled is the row of a call that has none yet, as far as its end needs it.
func unsettled(requestID, model string, at time.Time) rules.Entry {
	return rules.Entry{ID: id.ReplacePrefix(requestID, id.Request, id.Ledger), Type: rules.EntrySpend, Model: model, CreatedUS: at.UnixMicro()}
}

// await answers a key whose call is pending: what was delivered, and that it is
// pending still.
func (h *Handler) await(w http.ResponseWriter, r *http.Request, q *plan, c *running, requestID string) error {
	res, err := h.recallPending(context.WithoutCancel(r.Context()), q, requestID)
	if err != nil {
		return err
	}
	return h.repeat(w, q, c, &res)
}

// recallPending reads a pending call back.
func (h *Handler) recallPending(ctx context.Context, q *plan, requestID string) (result, error) {
	answer, err := store.GetStoredResponse(ctx, h.DB, requestID)
	if errors.Is(err, sql.ErrNoRows) {
		return result{}, apierr.IdempotencyKeyReused.Errorf("the response to this key was too large to store; it was delivered once, as request %s", requestID)
	} else if err != nil {
		return result{}, err
	}
	body, err := unpack(answer)
	return result{entry: unsettled(requestID, q.model.ID, id.Time(requestID)), body: body, usage: provider.LastUsageFrame(body), pending: true}, err
}

// Resolve asks for the records of pending calls whose time has come, and settles
// those that it finds and those that have waited long enough. It returns how many
// it settled.
func (h *Handler) Resolve(ctx context.Context) (int, error) {
	list, err := h.Node.ClaimPendingCalls(ctx, askLease, askBatch)
	if err != nil {
		return 0, err
	}
	var settled atomic.Int64
	var asking errgroup.Group
	asking.SetLimit(askAtOnce)
	for _, d := range list {
		asking.Go(func() error {
			done, err := h.resolve(ctx, d)
			if done {
				settled.Add(1)
			}
			return err
		})
	}
	err = asking.Wait()
	return int(settled.Load()), err
}

func (h *Handler) resolve(ctx context.Context, d store.PendingCall) (bool, error) {
	usage, found := h.ask(ctx, d)
	if ctx.Err() != nil {
		return false, nil // the node stops; another one asks when our lease has ended
	}
	if !found && h.Now().UnixMicro()-d.SinceUS < recordAwaited.Microseconds() {
		return false, h.Node.PostponePendingCall(ctx, d.RequestID, pause(d.Tries))
	}
	text := ""
	if usage == nil {
		answer, err := store.GetStoredResponse(ctx, h.DB, d.RequestID)
		if err != nil && !errors.Is(err, sql.ErrNoRows) { // one that was too long was not kept
			return false, err
		} else if err == nil {
			body, err := unpack(answer)
			if err != nil {
				return false, err
			}
			text = provider.GeneratedText(body)
		}
	}
	c, err := bill(&d.HoldRow, usage, text)
	if err != nil {
		return false, err
	}
	if app, err := h.Apps.Get(ctx, d.AppID); err == nil {
		c.Risk = h.pace(&app)
	}
	_, _, err = h.settle(ctx, c)
	h.Log.InfoContext(ctx, "settled a pending call", "request_id", d.RequestID, "settlement", c.Settlement, "tries", d.Tries, "user_charge_mc", c.Charge.UserChargeMC)
	return err == nil, err
}

// ask looks for the record of a call. Usage that cannot be billed will not get
// better: the call is found, and has none.
func (h *Handler) ask(ctx context.Context, d store.PendingCall) (usage *provider.Usage, found bool) {
	who := h.Records[d.Provider]
	if who == nil {
		return nil, false // the operator has ended it; perhaps not on every node
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	usage, found, err := who.Stored(ctx, d.RecordID, d.RequestID)
	if err != nil {
		h.Log.WarnContext(ctx, "the record of a pending call could not be read", "request_id", d.RequestID, "provider", d.Provider, "tries", d.Tries, "error", err)
		return nil, false
	}
	if !found || usage == nil {
		return nil, false
	}
	t, err := readTerms(d.Terms)
	most := int64(money.Max) // of a model that is no longer offered
	if m, _, ok := h.Catalog.Current().Find(d.Model, h.Now()); ok {
		most = m.ContextTokens
	}
	if err != nil || !pricing.Usable(*usage, t.MaxTokens, most) {
		h.Log.ErrorContext(ctx, "the record of a pending call is absurd", "request_id", d.RequestID, "usage", usageJSON(*usage), "error", err)
		return nil, true
	}
	return usage, true
}

// heldTerms is what a hold's terms say, as far as a charge needs it.
type heldTerms struct {
	Rates       json.RawMessage `json:"rates"`
	MarginPPM   money.PPM       `json:"margin_ppm"`
	FeePPM      money.PPM       `json:"fee_ppm"`
	InputTokens int64           `json:"input_tokens"`
	MaxTokens   int64           `json:"max_tokens"`
	Counted     *int64          `json:"counted_tokens"` // where it is less than InputTokens
}

func readTerms(text string) (t heldTerms, err error) {
	err = json.Unmarshal([]byte(text), &t)
	if t.Counted != nil {
		t.InputTokens = min(t.InputTokens, *t.Counted)
	}
	return t, err
}

// bill makes the settlement of a call that nobody leads any longer: by the
// provider's usage, or without one as an estimate of the text that was delivered.
func bill(row *rules.HoldRow, usage *provider.Usage, text string) (rules.Settle, error) {
	t, err := readTerms(row.Terms)
	if err != nil {
		return rules.Settle{}, err
	}
	rates, err := catalog.ParseSnapshot(string(t.Rates))
	if err != nil {
		return rules.Settle{}, err
	}
	c := rules.Settle{Call: row.Call, Attempt: row.Attempt, Settlement: rules.Settled, Receipt: receiptText}
	var amounts pricing.Amounts
	if usage != nil {
		amounts, err = pricing.Charge(rates, *usage, t.MarginPPM, t.FeePPM)
	} else {
		usage = &provider.Usage{Input: t.InputTokens, Output: min(int64(tokens.Count(text)), t.MaxTokens)}
		c.Settlement = rules.Estimated
		amounts, err = pricing.ChargeEstimate(rates, usage.Input, usage.Output, t.MarginPPM, t.FeePPM, row.HoldMC)
	}
	c.Charge, c.Usage = rules.Amounts(amounts), counted(*usage)
	return c, err
}

// counted is usage as it is stored.
func counted(u provider.Usage) rules.Usage {
	return rules.Usage{JSON: usageJSON(u), InputTokens: u.Input + u.Cached + u.CacheWrite, OutputTokens: u.Output}
}

// recordOf says at whom a dead attempt may be asked for, and by which id: the one
// that its chunks carry. "" = nobody keeps a record of it.
func (h *Handler) recordOf(ctx context.Context, row *rules.HoldRow, frames []byte) (name, record string, err error) {
	m, _, ok := h.Catalog.Current().Find(row.Model, h.Now())
	if !ok || h.Records[m.Provider] == nil {
		return "", "", nil
	}
	app, err := h.Apps.Get(ctx, row.AppID)
	if err != nil || app.ProviderMode == "mock" {
		return "", "", err
	}
	return m.Provider, strings.Trim(member(frames, `"id":`, ""), `"`), nil
}

// brokeOff is what a client reads after what was delivered.
func brokeOff(pending bool) []byte {
	how := "what was delivered is billed as an estimate"
	if pending {
		how = "the charge follows from its record"
	}
	return errorFrame(apierr.ProviderError.Errorf("the provider broke off; %s", how))
}
