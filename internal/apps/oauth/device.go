package oauth

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/http"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/oauth/verdict"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
)

// The errors of RFC 8628 §3.5. They are answered in the form of RFC 6749 only, so they are no codes of the envelope.
var (
	authorizationPending = newErrorCode("authorization_pending", false)
	slowDown             = newErrorCode("slow_down", false)
	accessDenied         = newErrorCode("access_denied", true)
	expiredToken         = newErrorCode("expired_token", true)
)

func newErrorCode(name string, final bool) apierr.Code {
	return apierr.Code{Name: name, Status: http.StatusBadRequest, Type: "invalid_request", Final: final}
}

// A deviceRequest is what a device asks for and proposes to the user.
type deviceRequest struct {
	AppID       string
	RequestedMC money.MC // pre-fills the spend cap; 0 = not given
	Features    []string // slugs
}

// deviceCodes are the two codes of a device's request. Only their hashes are stored.
type deviceCodes struct {
	device string // for polling
	user   string // the letters that the user types
}

// createDeviceCode stores a device's request.
func (s *Store) createDeviceCode(ctx context.Context, r deviceRequest) (codes deviceCodes, err error) {
	row := verdict.DeviceCode{
		AppID:       r.AppID,
		RequestedMC: r.RequestedMC,
		Features:    r.Features,
		ExpiresUS:   s.Now().Add(verdict.DeviceCodeTTL).UnixMicro(),
		IntervalUS:  verdict.PollInterval.Microseconds(),
	}
	for range 3 { // two equal user codes are as good as impossible, and are no error
		codes = deviceCodes{id.NewSecret(), newUserCode()}
		err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			return insertDeviceCode(ctx, tx, id.Hash(codes.device), id.Hash(codes.user), row)
		})
		if !errors.Is(err, sql.ErrNoRows) {
			break
		}
	}
	if err != nil {
		return deviceCodes{}, fmt.Errorf("oauth: device code: %w", err)
	}
	return codes, nil
}

// newUserCode returns random letters of the alphabet, each equally likely.
func newUserCode() string {
	const n = len(verdict.UserCodeAlphabet)
	letters := make([]byte, 0, verdict.UserCodeLength)
	for len(letters) < verdict.UserCodeLength {
		var b [1]byte
		rand.Read(b[:])
		if int(b[0]) < 256/n*n {
			letters = append(letters, verdict.UserCodeAlphabet[int(b[0])%n])
		}
	}
	return string(letters)
}

// getDeviceCode returns the request behind the letters of a user code. The error wraps sql.ErrNoRows if there is none.
func (s *Store) getDeviceCode(ctx context.Context, userCode string) (verdict.DeviceCode, error) {
	c, err := getDeviceCode(ctx, s.DB, "user_code_hash", id.Hash(userCode), "")
	if err != nil {
		return c, fmt.Errorf("oauth: user code: %w", err)
	}
	return c, nil
}

// errDecided is the error for a user code that is no longer open.
var errDecided = errors.New("the code was decided or has expired")

// decideDevice stores what the user decided about a user code, in the caller's transaction. The zero Consent denies. It
// returns errDecided if the code is no longer open. No money moves before the device polls.
func (s *Store) decideDevice(ctx context.Context, tx *db.Tx, userCode string, given Consent) error {
	hash := id.Hash(userCode)
	c, err := lockDeviceCode(ctx, tx, "user_code_hash", hash)
	if err != nil {
		return fmt.Errorf("oauth: decide: %w", err)
	}
	nowUS := s.Now().UnixMicro()
	if !c.Open(nowUS) {
		return errDecided
	}
	if c.DecidedUS = &nowUS; given.AccountID != "" {
		if c.Approval, err = newApproval(ctx, tx, given); err != nil {
			return fmt.Errorf("oauth: decide: %w", err)
		}
	}
	if err := updateDecision(ctx, tx, hash, c); err != nil {
		return fmt.Errorf("oauth: decide: %w", err)
	}
	return nil
}

// pollDeviceCode answers a poll: with a connection and tokens once the user has approved. The zero row stands for an
// unknown code.
func (s *Store) pollDeviceCode(ctx context.Context, tx *db.Tx, app apps.App, req tokenRequest,
	c verdict.DeviceCode) (answer, error) {
	if c.AppID == "" {
		return reject(verdict.Unknown), nil
	}
	hash, nowUS := id.Hash(req.DeviceCode), s.Now().UnixMicro()
	judged, reason := c.JudgePoll(app.ID, req.ArrivedUS, nowUS)
	switch judged {
	case verdict.Accept:
		return s.connect(ctx, tx, app, c.Approval,
			func(connectionID, familyID string) error {
				return consumeDeviceCode(ctx, tx, hash, connectionID, familyID, nowUS)
			})
	case verdict.RevokeFamily:
		rejected := reject(reason)
		rejected.reuseDetected = true
		return rejected, s.endFamily(ctx, tx, *c.FamilyID)
	case verdict.Wait, verdict.SlowDown:
		interval := c.NextInterval(judged)
		return answer{rejected: newPollError(judged, interval)}, updatePoll(ctx, tx, hash, interval, nowUS)
	}
	switch reason {
	case verdict.AccessDenied:
		return answer{rejected: accessDenied.Errorf("The user denied the request.")}, nil
	case verdict.Expired:
		return answer{rejected: expiredToken.Errorf("The device code has expired. Ask for a new one.")}, nil
	}
	return reject(reason), nil
}

// newPollError returns the error of a poll that gets no tokens yet. intervalUS is the least time until the next one.
func newPollError(judged verdict.Verdict, intervalUS int64) error {
	seconds := intervalUS / 1_000_000
	if judged == verdict.SlowDown {
		return slowDown.Errorf("Polled too soon. Wait at least %d seconds between two polls from now on.", seconds)
	}
	return authorizationPending.Errorf("The user has not decided yet. Poll again in %d seconds.", seconds)
}
