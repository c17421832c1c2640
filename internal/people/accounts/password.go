package accounts

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/alexedwards/argon2id"
)

// hashing takes about 50 ms on one core of a server of today: one pass over
// 64 MiB, after RFC 9106, which advises few passes over much memory. A person
// does not notice it; whoever stole the table pays it for each guess. One lane,
// so that hashes are the same on every machine.
var hashing = argon2id.Params{Memory: 64 << 10, Iterations: 1, Parallelism: 1, SaltLength: 16, KeyLength: 32}

// slots bounds how many passwords are hashed at once, so that strangers who try
// to sign in cannot take all memory; the others wait their turn.
var slots = make(chan struct{}, runtime.GOMAXPROCS(0))

// nobody is compared with when there is no account or it has no password, so
// that the answer takes the same time.
var nobody = sync.OnceValues(func() (string, error) { return argon2id.CreateHash("nobody has this password", &hashing) })

// takeSlot waits for a turn to hash; the caller gives it back with <-slots.
func takeSlot(ctx context.Context) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// HashPassword returns what is stored of a password, for New. It takes a while:
// whoever is in a hurry with a transaction calls it before. A weak password is
// 400 invalid_request.
func HashPassword(ctx context.Context, password string) (string, error) {
	if err := checkPassword(password); err != nil {
		return "", err
	}
	if err := takeSlot(ctx); err != nil {
		return "", err
	}
	defer func() { <-slots }()
	return argon2id.CreateHash(password, &hashing)
}

// matches compares a password with a stored hash, in the same time when there is
// none. The caller holds a slot.
func matches(password, hash string) (bool, error) {
	known := hash != ""
	if !known {
		var err error
		if hash, err = nobody(); err != nil {
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
