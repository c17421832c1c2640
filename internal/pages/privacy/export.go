package privacy

import (
	"archive/zip"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// exportStep is the number of rows that one query reads from a long list.
const exportStep = 1000

const readme = `All your data at Purser, as of the moment of the download.

Each file has one JSON row per line. Amounts that end in _mc are whole
micro-cents: 100,000,000 are a US dollar. Times are UTC.

account.jsonl              your account
connections.jsonl          apps that you connected, with their spend caps
ledger.jsonl               your ledger entries, newest first
top-ups.jsonl              your payments and their records
allocation-requests.jsonl  higher spend caps that apps requested
notices.jsonl              notices about your connections
security-events.jsonl      security events of your account in the last %[2]s
sessions.jsonl             browsers in which you are signed in
passkeys.jsonl             passkeys that sign you in, by the names you gave them
logins.jsonl               provider logins that are linked to your account
auto-top-up.jsonl          your automatic top-up
apps.jsonl                 your apps
memberships.jsonl          apps of other accounts in which you have a role
invitations.jsonl          invitations to your address, and those that you sent
test-accounts.jsonl        your test accounts
margins.jsonl              what your apps earned, was paid, and is owed
payee.jsonl                your account at Stripe that is paid
payouts.jsonl              payouts of margin

Passwords, keys, tokens and other users' addresses are not included. Responses
to calls are stored for %[1]s for the app that made them. Ask the app for them.
`

// Export streams all data of an account as a ZIP file. After an error the file has no directory at its end, so that no
// program opens it.
func (s *Store) Export(ctx context.Context, w io.Writer, a accounts.Account) error {
	z := zip.NewWriter(w)
	text, err := s.create(z, "README.txt")
	if err == nil {
		responses, events := s.describeKept()
		_, err = fmt.Fprintf(text, readme, responses, events)
	}
	if err != nil {
		return fmt.Errorf("privacy: export: %w", err)
	}
	for _, f := range []struct {
		name string
		rows func(context.Context, accounts.Account, put) error
	}{
		{"account", s.putAccount}, {"connections", s.putConnections}, {"ledger", s.putLedger},
		{"top-ups", s.putPayments}, {"allocation-requests", s.putAllocationRequests},
		{"notices", s.putNotices}, {"security-events", s.putEvents}, {"sessions", s.putSessions},
		{"passkeys", s.putPasskeys}, {"logins", s.putLogins}, {"auto-top-up", s.putAuto}, {"apps", s.putApps},
		{"memberships", s.putMemberships}, {"invitations", s.putInvitations},
		{"test-accounts", s.putTestAccounts}, {"margins", s.putMargins}, {"payee", s.putPayee},
		{"payouts", s.putPayouts},
	} {
		file, err := s.create(z, f.name+".jsonl")
		if err != nil {
			return fmt.Errorf("privacy: export: %w", err)
		}
		if err := f.rows(ctx, a, json.NewEncoder(file).Encode); err != nil {
			return fmt.Errorf("privacy: export %s: %w", f.name, err)
		}
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("privacy: export: %w", err)
	}
	return nil
}

func (s *Store) create(z *zip.Writer, name string) (io.Writer, error) {
	return z.CreateHeader(&zip.FileHeader{Name: "purser-data/" + name, Method: zip.Deflate, Modified: s.Now()})
}

// put writes one JSON row.
type put func(row any) error

func (s *Store) putAccount(ctx context.Context, a accounts.Account, row put) error {
	b, err := store.GetBalance(ctx, s.DB, a.ID)
	if err != nil {
		return err
	}
	role, err := s.Accounts.GetRole(ctx, a.ID)
	if err != nil {
		return err
	}
	return row(struct {
		ID          string   `json:"id"`
		Email       string   `json:"email"`
		CreatedAt   string   `json:"created_at"`
		TestAccount bool     `json:"test_account"`
		Developer   bool     `json:"developer"`
		Role        string   `json:"operator_role"`
		TwoStep     bool     `json:"two_step_sign_in"`
		Notices     bool     `json:"wants_notices"`
		AvailableMC money.MC `json:"available_mc"`
		ReservedMC  money.MC `json:"reserved_mc"`
	}{a.ID, a.Email, timestamp.Format(a.CreatedUS), a.Sandbox, a.Developer, string(role), a.TwoStep, a.Notices,
		b.AvailableMC, b.ReservedMC})
}

func (s *Store) putConnections(ctx context.Context, a accounts.Account, row put) error {
	list, err := store.ConnectionsOfAccount(ctx, s.DB, a.ID, maxRows)
	if err != nil {
		return err
	}
	names := map[string]string{}
	for _, c := range list {
		if _, known := names[c.AppID]; !known {
			app, err := s.Apps.Get(ctx, c.AppID)
			if err != nil {
				return err
			}
			names[c.AppID] = app.Name
		}
		if err := row(struct {
			App string `json:"app_name"`
			rules.ConnectionResource
		}{names[c.AppID], c.Resource()}); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) putLedger(ctx context.Context, a accounts.Account, row put) error {
	for before := int64(0); ; {
		rows, next, err := store.BrowseEntries(ctx, s.DB, store.EntryFilter{AccountID: a.ID}, before, exportStep)
		if err != nil {
			return err
		}
		if err := store.FindPaid(ctx, s.DB, rows); err != nil {
			return err
		}
		for _, e := range rows {
			if err := row(struct {
				Seq int64 `json:"seq"`
				rules.EntryResource
				Available money.MC `json:"available_change_mc"`
				Reserved  money.MC `json:"reserved_change_mc"`
			}{e.Seq, e.Resource(), e.AvailableDeltaMC, e.ReservedDeltaMC}); err != nil {
				return err
			}
		}
		if before = next; next == 0 {
			return nil
		}
	}
}

// A paymentRecord is one record of a payment.
type paymentRecord struct {
	What      string   `json:"what"`
	AmountMC  money.MC `json:"amount_mc"`
	Reason    string   `json:"reason,omitempty"`
	CreatedAt string   `json:"created_at"`
}

func (s *Store) putPayments(ctx context.Context, a accounts.Account, row put) error {
	list, err := store.PaymentsOfAccount(ctx, s.DB, a.ID, maxRows)
	if err != nil {
		return err
	}
	for _, p := range list {
		records := []paymentRecord{}
		for _, r := range p.Records {
			records = append(records, paymentRecord{r.Kind, r.AmountMC, r.Reason, timestamp.Format(r.CreatedUS)})
		}
		if err := row(struct {
			ID         string          `json:"id"`
			Status     string          `json:"status"`
			AmountMC   money.MC        `json:"amount_mc"`
			ReturnedMC money.MC        `json:"returned_mc"`
			Intent     string          `json:"stripe_payment_intent,omitempty"`
			Records    []paymentRecord `json:"records"`
		}{p.ID, string(p.Status), p.AmountMC, p.ReversedMC, p.PaymentIntent, records}); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) putAllocationRequests(ctx context.Context, a accounts.Account, row put) error {
	connections, err := store.ConnectionsOfAccount(ctx, s.DB, a.ID, maxRows)
	if err != nil {
		return err
	}
	for _, c := range connections {
		for after := ""; ; {
			list, err := store.AllocationRequestsOfConnection(ctx, s.DB, c.ID, after, exportStep)
			if err != nil {
				return err
			}
			for _, r := range list {
				if err := row(r.Resource()); err != nil {
					return err
				}
			}
			if len(list) < exportStep {
				break
			}
			after = list[len(list)-1].ID
		}
	}
	return nil
}

func (s *Store) putNotices(ctx context.Context, a accounts.Account, row put) error {
	for after := ""; ; {
		list, err := listNotices(ctx, s.DB, a.ID, after, exportStep)
		if err != nil {
			return err
		}
		for _, n := range list {
			if err := row(n); err != nil {
				return err
			}
			after = n.ID
		}
		if len(list) < exportStep {
			return nil
		}
	}
}

func (s *Store) putEvents(ctx context.Context, a accounts.Account, row put) error {
	list, err := s.Accounts.ListEvents(ctx, a.ID, maxRows)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := row(struct {
			What      string `json:"what"`
			Address   string `json:"address"`
			Browser   string `json:"browser"`
			CreatedAt string `json:"created_at"`
		}{string(e.Kind), e.Address, e.Agent, timestamp.Format(e.CreatedUS)}); err != nil {
			return err
		}
	}
	return nil
}

// putSessions leaves out the ids, which are hashes of the sessions' tokens.
func (s *Store) putSessions(ctx context.Context, a accounts.Account, row put) error {
	list, err := s.Sessions.ListSessions(ctx, a.ID, maxRows)
	if err != nil {
		return err
	}
	for _, session := range list {
		if err := row(struct {
			Browser   string `json:"browser"`
			StartedAt string `json:"started_at"`
			SeenAt    string `json:"last_seen_at"`
		}{session.Agent, timestamp.Format(session.StartedUS), timestamp.Format(session.SeenUS)}); err != nil {
			return err
		}
	}
	return nil
}

// putPasskeys leaves out the keys.
func (s *Store) putPasskeys(ctx context.Context, a accounts.Account, row put) error {
	f, err := s.Identity.GetFactors(ctx, a.ID)
	if err != nil {
		return err
	}
	for _, k := range f.Passkeys {
		used := ""
		if k.UsedUS > 0 {
			used = timestamp.Format(k.UsedUS)
		}
		if err := row(struct {
			Name      string `json:"name"`
			CreatedAt string `json:"created_at"`
			UsedAt    string `json:"last_used_at,omitempty"`
		}{k.Name, timestamp.Format(k.CreatedUS), used}); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) putLogins(ctx context.Context, a accounts.Account, row put) error {
	list, err := s.Identity.ListLogins(ctx, a.ID)
	if err != nil {
		return err
	}
	for _, l := range list {
		if err := row(struct {
			Provider string `json:"provider"`
			Email    string `json:"email"`
			LinkedAt string `json:"linked_at"`
		}{l.Issuer, l.Email, timestamp.Format(l.CreatedUS)}); err != nil {
			return err
		}
	}
	return nil
}

// putAuto writes no row for a user without a saved card.
func (s *Store) putAuto(ctx context.Context, a accounts.Account, row put) error {
	auto, ok, err := s.Topups.GetAuto(ctx, a.ID)
	if err != nil || !ok {
		return err
	}
	return row(auto)
}

// putApps leaves out the testers: their addresses are other users' data.
func (s *Store) putApps(ctx context.Context, a accounts.Account, row put) error {
	list, err := apps.ListOwned(ctx, s.DB, a.ID)
	if err != nil {
		return err
	}
	for _, app := range list {
		r := app.Resource()
		r.TestAllowlist = []string{}
		if err := row(r); err != nil {
			return err
		}
	}
	return nil
}

// putMemberships writes the apps of other accounts in which the account has a role.
func (s *Store) putMemberships(ctx context.Context, a accounts.Account, row put) error {
	list, err := s.Apps.ListMemberships(ctx, a.ID)
	if err != nil {
		return err
	}
	for _, m := range list {
		if m.OwnerID == a.ID {
			continue
		}
		if err := row(struct {
			AppID string `json:"app_id"`
			App   string `json:"app_name"`
			Role  string `json:"role"`
		}{m.ID, m.Name, string(m.Role)}); err != nil {
			return err
		}
	}
	return nil
}

// putInvitations leaves out the addresses of other users.
func (s *Store) putInvitations(ctx context.Context, a accounts.Account, row put) error {
	list, err := s.Members.ListInvitationsOf(ctx, a)
	if err != nil {
		return err
	}
	for _, i := range list {
		if err := row(struct {
			ID        string `json:"id"`
			AppID     string `json:"app_id"`
			Role      string `json:"role"`
			Sent      bool   `json:"sent_by_you"`
			CreatedAt string `json:"created_at"`
			ExpiresAt string `json:"expires_at"`
		}{i.ID, i.AppID, string(i.Role), i.InviterID == a.ID, timestamp.Format(i.CreatedUS),
			timestamp.Format(i.ExpiresUS)}); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) putTestAccounts(ctx context.Context, a accounts.Account, row put) error {
	list, err := accounts.ListTestAccounts(ctx, s.DB, a.ID)
	if err != nil {
		return err
	}
	for _, t := range list {
		if err := row(struct {
			ID        string `json:"id"`
			CreatedAt string `json:"created_at"`
		}{t.ID, timestamp.Format(t.CreatedUS)}); err != nil {
			return err
		}
	}
	return nil
}

// putMargins writes the margins of the apps that have or had any.
func (s *Store) putMargins(ctx context.Context, a accounts.Account, row put) error {
	list, err := s.Payouts.ListMargins(ctx, a.ID)
	if err != nil {
		return err
	}
	for _, m := range list {
		if err := row(struct {
			AppID      string   `json:"app_id"`
			App        string   `json:"app_name"`
			EarnedMC   money.MC `json:"earned_mc"`
			PaidMC     money.MC `json:"paid_mc"`
			DisputedMC money.MC `json:"disputed_mc"`
			UnpaidMC   money.MC `json:"unpaid_mc"`
		}{m.ID, m.Name, m.EarnedMC, m.TakenMC - m.DisputedMC, m.DisputedMC, m.EarnedMC - m.TakenMC}); err != nil {
			return err
		}
	}
	return nil
}

// putPayee writes no row for an account that has not said whom to pay.
func (s *Store) putPayee(ctx context.Context, a accounts.Account, row put) error {
	p, ok, err := s.Payouts.FindPayee(ctx, a.ID)
	if err != nil || !ok {
		return err
	}
	return row(struct {
		StripeAccount string `json:"stripe_account"`
		Submitted     bool   `json:"details_submitted"`
		Payable       bool   `json:"can_be_paid"`
	}{p.StripeID, p.Submitted, p.Enabled})
}

func (s *Store) putPayouts(ctx context.Context, a accounts.Account, row put) error {
	list, err := store.PayoutsOfDeveloper(ctx, s.DB, a.ID, maxRows)
	if err != nil {
		return err
	}
	for _, p := range list {
		if err := row(struct {
			ID        string   `json:"id"`
			AppID     string   `json:"app_id"`
			AmountMC  money.MC `json:"amount_mc"`
			Status    string   `json:"status"`
			Transfer  string   `json:"stripe_transfer,omitempty"`
			Reason    string   `json:"reason,omitempty"`
			CreatedAt string   `json:"created_at"`
		}{p.ID, p.AppID, p.AmountMC, p.Status, p.TransferID, p.Reason, timestamp.Format(p.CreatedUS)}); err != nil {
			return err
		}
	}
	return nil
}
