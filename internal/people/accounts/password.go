package accounts

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/alexedwards/argon2id"
)

// argonParams are the parameters of argon2id after RFC 9106: one pass over 64 MiB, about 50 ms on
// one core of a current server. One lane, so that hashes are equal on every machine.
var argonParams = argon2id.Params{
	Memory:      64 << 10,
	Iterations:  1,
	Parallelism: 1,
	SaltLength:  16,
	KeyLength:   32,
}

// hashSlots bounds concurrent hashes, so that sign-in attempts cannot exhaust the memory; further
// attempts wait.
var hashSlots = make(chan struct{}, runtime.GOMAXPROCS(0))

// dummyHash is compared with when there is no account or no password, so that the response takes
// the same time.
var dummyHash = sync.OnceValues(func() (string, error) {
	return argon2id.CreateHash("no account has this password", &argonParams)
})

// acquireHashSlot waits for a slot to hash; the caller releases it with <-hashSlots.
func acquireHashSlot(ctx context.Context) error {
	select {
	case hashSlots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// HashPassword returns the hash of a password, for NewAccount. It is slow: call it before a
// transaction starts. A weak password is 400 invalid_request.
func HashPassword(ctx context.Context, password string) (string, error) {
	if err := validatePassword(password); err != nil {
		return "", err
	}
	if err := acquireHashSlot(ctx); err != nil {
		return "", err
	}
	defer func() { <-hashSlots }()
	return argon2id.CreateHash(password, &argonParams)
}

// comparePassword compares a password with a stored hash, in the same time when there is none. The
// caller holds a slot.
func comparePassword(password, hash string) (bool, error) {
	known := hash != ""
	if !known {
		var err error
		if hash, err = dummyHash(); err != nil {
			return false, fmt.Errorf("accounts: %w", err)
		}
	}
	if len(password) > maxPasswordBytes {
		password = password[:maxPasswordBytes+1] // no stored password is that long
	}
	ok, err := argon2id.ComparePasswordAndHash(password, hash)
	if err != nil {
		return false, fmt.Errorf("accounts: stored password: %w", err)
	}
	return ok && known, nil
}
