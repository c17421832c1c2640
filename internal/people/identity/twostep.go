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

	"github.com/pquerna/otp/hotp"
	"rsc.io/qr"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/people/accounts"
)

const (
	stepSeconds = 30 // RFC 6238
	codeDigits  = 6
	codeCount   = 10 // recovery codes
	quiet       = 4  // modules around a QR code
)

var alphabet = base32.StdEncoding.WithPadding(base32.NoPadding)

func place(accountID string) seal.Place { return seal.Place{"totp_seeds", "sealed", accountID} }

// BeginTwoStep makes a seed that counts for nothing until EndTwoStep.
func (s *Store) BeginTwoStep(ctx context.Context, from accounts.Client, a accounts.Account, password string) error {
	if err := s.people.Reauthenticate(ctx, from, a, password); err != nil {
		return err
	}
	plain := make([]byte, 20)
	rand.Read(plain)
	sealed, err := s.box.Seal(plain, place(a.ID))
	if err != nil {
		return err
	}
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return setSeed(ctx, tx, a.ID, sealed) })
}

// Secret returns the seed of a set-up that has begun, in base 32. The error wraps
// sql.ErrNoRows when none has, or it is over.
func (s *Store) Secret(ctx context.Context, accountID string) (string, error) {
	secret, stored, err := s.secret(ctx, s.db, accountID)
	if err == nil && stored.active {
		err = fmt.Errorf("identity: set-up: %w", sql.ErrNoRows) // never shown again
	}
	if err != nil {
		return "", err
	}
	return secret, nil
}

func (s *Store) secret(ctx context.Context, q db.Queryer, accountID string) (string, seed, error) {
	stored, err := getSeed(ctx, q, accountID)
	if err != nil {
		return "", seed{}, fmt.Errorf("identity: seed: %w", err)
	}
	plain, err := s.box.Open(stored.sealed, place(accountID))
	if err != nil {
		return "", seed{}, err
	}
	return alphabet.EncodeToString(plain), stored, nil
}

// EndTwoStep adds the authenticator app, by a first code. With the first second
// factor of an account all sessions end, and the recovery codes are returned; the
// caller starts another session of the account returned.
func (s *Store) EndTwoStep(ctx context.Context, from accounts.Client, a accounts.Account, code string) (accounts.Account, []string, error) {
	var codes []string
	changed := a
	err := s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := errors.Join(s.unchanged(ctx, tx, a), s.mayTry(a.ID)); err != nil { // one try of an account at a time
			return err
		}
		ok, err := s.takeTOTP(ctx, tx, a.ID, code, false)
		if err != nil {
			return err
		}
		if !ok {
			s.codes.Allow(a.ID)
			return errCode()
		}
		if err := activateSeed(ctx, tx, a.ID); err != nil {
			return err
		}
		if err := s.people.RecordEvent(ctx, tx, a.ID, accounts.AuthenticatorAdded, from); err != nil {
			return err
		}
		if codes, err = s.arm(ctx, tx, a, from); err != nil {
			return err
		}
		if err := s.send(ctx, tx, a.ID, a.Email, factorChangedEmail("An authenticator app", true, !a.TwoStep, s.dashboard)); err != nil {
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

// SecondStep checks a one-time code or a recovery code; each works once.
func (s *Store) SecondStep(ctx context.Context, from accounts.Client, a accounts.Account, code string) error {
	err := s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := errors.Join(s.unchanged(ctx, tx, a), s.mayTry(a.ID)); err != nil { // one try of an account at a time
			return err
		}
		if ok, err := s.takeTOTP(ctx, tx, a.ID, code, true); err != nil || ok {
			return err
		}
		ok, err := takeCode(ctx, tx, a.ID, id.Hash(a.ID+" "+plainCode(code)))
		if err != nil {
			return fmt.Errorf("identity: recovery code: %w", err)
		}
		if !ok {
			s.codes.Allow(a.ID)
			return errCode()
		}
		return s.people.RecordEvent(ctx, tx, a.ID, accounts.RecoveryCodeUsed, from)
	})
	if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code == apierr.Unauthorized {
		s.people.QueueEvent(a.ID, accounts.CodeFailed, from)
	}
	return err
}

// takeTOTP checks a one-time code of now, the step before or the one after, for
// clocks that differ, and marks its step as used.
func (s *Store) takeTOTP(ctx context.Context, tx *db.Tx, accountID, code string, active bool) (bool, error) {
	code = plainCode(code)
	secret, stored, err := s.secret(ctx, tx, accountID)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if stored.active != active || len(code) != codeDigits {
		return false, nil
	}
	now := s.now().Unix() / stepSeconds
	for step := now - 1; step <= now+1; step++ {
		want, err := hotp.GenerateCode(secret, uint64(step))
		if err != nil {
			return false, fmt.Errorf("identity: code: %w", err)
		}
		if same(want, code) {
			return takeStep(ctx, tx, accountID, step)
		}
	}
	return false, nil
}

// NewCodes replaces the recovery codes, for whoever knows the password and is
// signed in by two steps.
func (s *Store) NewCodes(ctx context.Context, from accounts.Client, a accounts.Account, password string) (codes []string, err error) {
	if err := s.people.Reauthenticate(ctx, from, a, password); err != nil {
		return nil, err
	}
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.unchanged(ctx, tx, a); err != nil {
			return err
		}
		if codes, err = s.makeCodes(ctx, tx, a.ID); err != nil {
			return err
		}
		return s.people.RecordEvent(ctx, tx, a.ID, accounts.RecoveryCodesReplaced, from)
	})
	return codes, err
}

func (s *Store) makeCodes(ctx context.Context, tx *db.Tx, accountID string) (codes []string, err error) {
	if err := deleteCodes(ctx, tx, accountID); err != nil {
		return nil, fmt.Errorf("identity: recovery codes: %w", err)
	}
	for range codeCount {
		var b [10]byte // 80 bits: a plain hash of it tells nothing
		rand.Read(b[:])
		code := strings.ToLower(alphabet.EncodeToString(b[:]))
		if err := insertCode(ctx, tx, accountID, id.Hash(accountID+" "+code)); err != nil {
			return nil, fmt.Errorf("identity: recovery codes: %w", err)
		}
		codes = append(codes, groups(code))
	}
	return codes, nil
}

// TurnOff takes the authenticator app away, for whoever knows the password and is
// signed in by two steps. With the last second factor of an account two-step
// sign-in ends, and all sessions; the caller starts another one of the account
// returned.
func (s *Store) TurnOff(ctx context.Context, from accounts.Client, a accounts.Account, password string) (accounts.Account, error) {
	if err := s.people.Reauthenticate(ctx, from, a, password); err != nil {
		return a, err
	}
	changed := a
	err := s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		err := s.unchanged(ctx, tx, a)
		if err == nil {
			err = deleteSeed(ctx, tx, a.ID)
		}
		if err == nil {
			err = s.people.RecordEvent(ctx, tx, a.ID, accounts.AuthenticatorRemoved, from)
		}
		off := false
		if err == nil {
			off, err = s.disarm(ctx, tx, a.ID, from)
		}
		if err == nil {
			err = s.send(ctx, tx, a.ID, a.Email, factorChangedEmail("An authenticator app", false, off, s.dashboard))
		}
		if err == nil {
			changed, err = accounts.GetAccount(ctx, tx, a.ID)
		}
		return err
	})
	return changed, err
}

// CodesLeft counts the recovery codes that were not used.
func (s *Store) CodesLeft(ctx context.Context, accountID string) (int, error) {
	return countCodes(ctx, s.db, accountID)
}

// plainCode takes out what people type to read a code more easily.
func plainCode(code string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(code))
}

// groups writes a code in fours.
func groups(code string) string {
	var parts []string
	for ; len(code) > 4; code = code[4:] {
		parts = append(parts, code[:4])
	}
	return strings.Join(append(parts, code), "-")
}

// square draws what an authenticator app scans: the side of the QR code with its
// margin, and the path of its dark modules.
func square(email, secret string) (size int, path string, err error) {
	address := "otpauth://totp/Purser:" + url.PathEscape(email) + "?" + url.Values{"secret": {secret}, "issuer": {"Purser"}}.Encode()
	code, err := qr.Encode(address, qr.M)
	if err != nil {
		return 0, "", fmt.Errorf("identity: QR code: %w", err)
	}
	var b strings.Builder
	for y := range code.Size {
		for x := range code.Size {
			if code.Black(x, y) {
				fmt.Fprintf(&b, "M%d %dh1v1h-1z", x+quiet, y+quiet)
			}
		}
	}
	return code.Size + 2*quiet, b.String(), nil
}
