package identity

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base32"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/pquerna/otp/hotp"
	"rsc.io/qr"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/people/accounts"
)

const (
	totpStepSeconds   = 30 // RFC 6238
	totpDigits        = 6
	recoveryCodeCount = 10 // recovery codes
	qrMargin          = 4  // quiet zone, in modules

	// setupTTL is the time from the password to the first code of a new authenticator app.
	setupTTL = 10 * time.Minute
)

var base32Encoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// twoStepStore manages authenticator apps and recovery codes, and verifies their codes.
type twoStepStore struct{ *Store }

func seedPlace(accountID string) seal.Place { return seal.Place{"totp_seeds", "sealed", accountID} }

// beginSetup stores a new seed, which is inactive until finishSetup in the same browser, with id holder.
func (s twoStepStore) beginSetup(ctx context.Context, from accounts.Client, a accounts.Account,
	holder, password string) error {
	if err := s.accounts.Reauthenticate(ctx, from, a, password); err != nil {
		return err
	}
	plain := make([]byte, 20)
	rand.Read(plain)
	sealed, err := s.box.Seal(plain, seedPlace(a.ID))
	if err != nil {
		return err
	}
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return setTOTPSeed(ctx, tx, a.ID, totpSeed{
			sealed:    sealed,
			epoch:     a.Epoch,
			holder:    holder,
			expiresUS: s.now().Add(setupTTL).UnixMicro(),
		})
	})
}

// isOpenSetup reports whether a may finish the set-up of a seed in the browser with id holder.
func (s twoStepStore) isOpenSetup(stored totpSeed, a accounts.Account, holder string) bool {
	return !stored.active && stored.epoch == a.Epoch && holder != "" && stored.holder == holder &&
		s.now().UnixMicro() < stored.expiresUS
}

// getSetupSecret returns the seed of a set-up in progress in the browser with id holder, in base 32.
// The error wraps sql.ErrNoRows when there is none or it is finished.
func (s twoStepStore) getSetupSecret(ctx context.Context, a accounts.Account, holder string) (string, error) {
	secret, stored, err := s.openSeed(ctx, s.db, a.ID)
	if err == nil && !s.isOpenSetup(stored, a, holder) {
		err = fmt.Errorf("identity: set-up: %w", sql.ErrNoRows)
	}
	if err != nil {
		return "", err
	}
	return secret, nil
}

func (s twoStepStore) openSeed(ctx context.Context, q db.Queryer, accountID string) (string, totpSeed, error) {
	stored, err := getTOTPSeed(ctx, q, accountID)
	if err != nil {
		return "", totpSeed{}, fmt.Errorf("identity: seed: %w", err)
	}
	plain, err := s.box.Open(stored.sealed, seedPlace(accountID))
	if err != nil {
		return "", totpSeed{}, err
	}
	return base32Encoding.EncodeToString(plain), stored, nil
}

// errSetUpMeanwhile means that another request has turned two-step verification on: the same form that was sent twice.
// Only its answer had the recovery codes, and the browser may not have shown it.
var errSetUpMeanwhile = errors.New("identity: two-step verification was turned on by another request")

// finishSetup adds the authenticator app after verifying a first code. With the first second factor
// of an account all sessions end and recovery codes are returned; the caller starts another session
// for the returned account.
func (s twoStepStore) finishSetup(ctx context.Context, from accounts.Client, a accounts.Account,
	holder, code string) (accounts.Account, []string, error) {
	var codes []string
	changed, tries := a, s.newCodeTries(from, a.ID, a.Epoch)
	err := s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		// the lock serializes attempts
		if now, err := accounts.Lock(ctx, tx, a.ID); err == nil && now.TwoStep && !a.TwoStep {
			return errSetUpMeanwhile
		}
		if err := s.lockUnchanged(ctx, tx, a); err != nil {
			return err
		}
		if err := tries.check(ctx, tx); err != nil {
			return err
		}
		stored, err := getTOTPSeed(ctx, tx, a.ID)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("identity: seed: %w", err)
		}
		if err != nil || !s.isOpenSetup(stored, a, holder) {
			return apierr.Unauthorized.Errorf("This set-up expired or began in another browser. Start over.")
		}
		ok, err := s.verifyTOTP(ctx, tx, a.ID, code, false)
		if err != nil {
			return err
		}
		if !ok {
			tries.fail()
			return errCode()
		}
		if err := activateTOTPSeed(ctx, tx, a.ID); err != nil {
			return err
		}
		if err := s.accounts.RecordEvent(ctx, tx, a.ID, accounts.AuthenticatorAdded, from); err != nil {
			return err
		}
		if codes, err = s.enableTwoStep(ctx, tx, a, from); err != nil {
			return err
		}
		if err := s.sendMail(ctx, tx, a.ID, a.Email,
			factorChangedEmail("An authenticator app", true, !a.TwoStep, s.dashboard)); err != nil {
			return err
		}
		changed, err = accounts.GetAccount(ctx, tx, a.ID)
		return err
	})
	return changed, codes, err
}

func errCode() error {
	return apierr.Unauthorized.Errorf("Incorrect code, or it was already used. Wait for the next one.")
}

// verifyCode verifies a one-time code or a recovery code; each works once.
func (s twoStepStore) verifyCode(ctx context.Context, from accounts.Client, a accounts.Account, code string) error {
	tries, wrong := s.newCodeTries(from, a.ID, a.Epoch), false
	err := s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		// the lock serializes attempts
		if err := s.lockUnchanged(ctx, tx, a); err != nil {
			return err
		}
		if err := tries.check(ctx, tx); err != nil {
			return err
		}
		before, err := s.checkWrongCodes(ctx, tx, from, a.ID)
		if err != nil {
			return err
		}
		if ok, err := s.verifyTOTP(ctx, tx, a.ID, code, true); err != nil || ok {
			return err
		}
		ok, err := useRecoveryCode(ctx, tx, a.ID, id.Hash(a.ID+" "+normalizeCode(code)))
		if err != nil {
			return fmt.Errorf("identity: recovery code: %w", err)
		}
		if wrong = !ok; wrong {
			tries.fail()
			return s.recordWrongCode(ctx, tx, from, a, before+1)
		}
		return s.accounts.RecordEvent(ctx, tx, a.ID, accounts.RecoveryCodeUsed, from)
	})
	if err == nil && wrong {
		return errCode()
	}
	return err
}

// Wrong codes of an account within codeWindow, since its password was last set, on all nodes. Three codes of a million
// are right at a time, so that who has the password finds one in a year with a chance of one in thirty.
const (
	codeWindow    = 24 * time.Hour
	maxWrongCodes = 30 // of networks that the account has not signed in from, and of each network
	codesReported = 10 // then the owner learns that someone has the password
)

// checkWrongCodes returns how many wrong codes were entered lately, or 429 rate_limited after too many.
func (s twoStepStore) checkWrongCodes(ctx context.Context, tx *db.Tx, from accounts.Client,
	accountID string) (int, error) {
	list, err := s.accounts.ListWrongCodes(ctx, tx, accountID, s.now().Add(-codeWindow))
	if err != nil {
		return 0, err
	}
	mine := 0
	for _, e := range list {
		if e.Network() == from.Network() {
			mine++
		}
	}
	if len(list) < maxWrongCodes {
		return len(list), nil
	}
	if mine < maxWrongCodes {
		if known, err := s.accounts.KnowsNetwork(ctx, tx, accountID, from); err != nil || known {
			return len(list), err
		}
	}
	e := apierr.RateLimited.Errorf("Too many failed attempts. Set a new password by email, or try again tomorrow.")
	e.RetryAfter = codeWindow - s.now().Sub(time.UnixMicro(list[maxWrongCodes-1].CreatedUS))
	return 0, e
}

// recordWrongCode records the n-th wrong code.
func (s twoStepStore) recordWrongCode(ctx context.Context, tx *db.Tx, from accounts.Client, a accounts.Account,
	n int) error {
	if err := s.accounts.RecordEvent(ctx, tx, a.ID, accounts.CodeFailed, from); err != nil || n != codesReported {
		return err
	}
	return s.sendMail(ctx, tx, a.ID, a.Email, wrongCodesEmail(n, s.dashboard))
}

// verifyTOTP verifies a code of the current, the previous or the next time step (RFC 6238), to
// allow for clock drift, and marks its step as used.
func (s twoStepStore) verifyTOTP(ctx context.Context, tx *db.Tx, accountID, code string, active bool) (bool, error) {
	code = normalizeCode(code)
	secret, stored, err := s.openSeed(ctx, tx, accountID)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if stored.active != active || len(code) != totpDigits {
		return false, nil
	}
	now := s.db.Real(s.now()).Unix() / totpStepSeconds
	for step := now - 1; step <= now+1; step++ {
		want, err := hotp.GenerateCode(secret, uint64(step))
		if err != nil {
			return false, fmt.Errorf("identity: code: %w", err)
		}
		if equalSecrets(want, code) {
			return useTOTPStep(ctx, tx, accountID, step)
		}
	}
	return false, nil
}

// replaceRecoveryCodes replaces the recovery codes, after re-authentication.
func (s twoStepStore) replaceRecoveryCodes(ctx context.Context, from accounts.Client, a accounts.Account,
	password string) (codes []string, err error) {
	if err := s.accounts.Reauthenticate(ctx, from, a, password); err != nil {
		return nil, err
	}
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.lockUnchanged(ctx, tx, a); err != nil {
			return err
		}
		if codes, err = s.createRecoveryCodes(ctx, tx, a.ID); err != nil {
			return err
		}
		return s.accounts.RecordEvent(ctx, tx, a.ID, accounts.RecoveryCodesReplaced, from)
	})
	return codes, err
}

// removeAuthenticator removes the authenticator app, after re-authentication. With the last second
// factor two-step verification and all sessions end; the caller starts another session for the
// returned account.
func (s twoStepStore) removeAuthenticator(ctx context.Context, from accounts.Client, a accounts.Account,
	password string) (accounts.Account, error) {
	if err := s.accounts.Reauthenticate(ctx, from, a, password); err != nil {
		return a, err
	}
	changed := a
	err := s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		err := s.lockUnchanged(ctx, tx, a)
		if err == nil {
			err = deleteTOTPSeed(ctx, tx, a.ID)
		}
		if err == nil {
			err = s.accounts.RecordEvent(ctx, tx, a.ID, accounts.AuthenticatorRemoved, from)
		}
		off := false
		if err == nil {
			off, err = s.disableTwoStepAfterLast(ctx, tx, a.ID, from)
		}
		if err == nil {
			err = s.sendMail(ctx, tx, a.ID, a.Email,
				factorChangedEmail("An authenticator app", false, off, s.dashboard))
		}
		if err == nil {
			changed, err = accounts.GetAccount(ctx, tx, a.ID)
		}
		return err
	})
	return changed, err
}

// countRecoveryCodes counts the unused recovery codes.
func (s twoStepStore) countRecoveryCodes(ctx context.Context, accountID string) (int, error) {
	return countRecoveryCodes(ctx, s.db, accountID)
}

// normalizeCode removes the separators of a code and lower-cases it.
func normalizeCode(code string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(code))
}

// groupCode splits a code into groups of four.
func groupCode(code string) string {
	var parts []string
	for ; len(code) > 4; code = code[4:] {
		parts = append(parts, code[:4])
	}
	return strings.Join(append(parts, code), "-")
}

// drawQRCode returns the QR code of an authenticator app: its side with the quiet zone, and the SVG
// path of its dark modules.
func drawQRCode(email, secret string) (size int, path string, err error) {
	address := "otpauth://totp/Purser:" + url.PathEscape(email) + "?" +
		url.Values{"secret": {secret}, "issuer": {"Purser"}}.Encode()
	code, err := qr.Encode(address, qr.M)
	if err != nil {
		return 0, "", fmt.Errorf("identity: QR code: %w", err)
	}
	var b strings.Builder
	for y := range code.Size {
		for x := range code.Size {
			if code.Black(x, y) {
				fmt.Fprintf(&b, "M%d %dh1v1h-1z", x+qrMargin, y+qrMargin)
			}
		}
	}
	return code.Size + 2*qrMargin, b.String(), nil
}
