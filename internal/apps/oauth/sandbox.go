package oauth

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/people/accounts"
)

// ConnectTestAccount connects a test account to a sandbox app of the same developer with a spend cap of capMC, unless
// it is connected, and issues tokens. The developer asks for it in place of the consent screen. As at the token
// endpoint, locks keep the app and the account as they are until the connection is created (I29). The error is
// sql.ErrNoRows if the app is not in the sandbox or the account is not a test account of its developer.
func (s *Store) ConnectTestAccount(ctx context.Context, appID, accountID string,
	capMC money.MC) (t TokenResponse, err error) {
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		app, err := apps.LockShared(ctx, tx, appID)
		if err != nil {
			return err
		}
		a, err := accounts.Lock(ctx, tx, accountID)
		if err != nil {
			return err
		}
		if app.Tier != apps.Sandbox || a.OwnerID != app.OwnerID || a.Deactivated {
			return sql.ErrNoRows
		}
		conn, err := store.LiveConnection(ctx, tx, appID, a.ID)
		if errors.Is(err, sql.ErrNoRows) {
			var done rules.Result
			done, err = s.Ledger.DoTx(ctx, tx, rules.Connect{
				ConnectionID: id.New(id.Connection, s.Now()),
				AppID:        appID,
				AccountID:    a.ID,
				Sandbox:      true,
				RequestedMC:  capMC,
				MaxMC:        tiers.PolicyOf(app.Tier).MaxCapMC,
			})
			conn = done.Connection
		}
		if err != nil {
			return err
		}
		if err := saveConsents(ctx, tx, conn, app.OwnWork, app.Transcripts, s.Now().UnixMicro()); err != nil {
			return err
		}
		t, err = s.IssueTokens(ctx, tx, conn.ID, appID, "")
		return err
	})
	if err != nil {
		return t, fmt.Errorf("oauth: connect test account: %w", err)
	}
	return t, nil
}
