package accounts

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alexedwards/argon2id"

	"github.com/purserhq/purser/internal/base/apierr"
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

// isLight says that HashLightly was called.
var isLight atomic.Bool

// HashLightly makes the hashes of this process that follow guard nothing, and take no time. Only tests call it.
func HashLightly() { isLight.Store(true) }

// newHash hashes a password.
func newHash(password string) (string, error) {
	params := argonParams
	if isLight.Load() {
		params.Memory = 8 // KiB, the least
	}
	return argon2id.CreateHash(normalizePassword(password), &params)
}

// hashes bounds concurrent hashes, so that sign-in attempts cannot exhaust the memory, and those that
// wait, so that nobody waits long.
var hashes = newHashQueue(runtime.GOMAXPROCS(0))

// dummyHash is compared with when there is no account or no password, so that the response takes
// the same time.
var dummyHash = sync.OnceValues(func() (string, error) {
	return newHash("no account has this password")
})

// A hashQueue has slots for hashes and a bounded queue for them.
type hashQueue struct {
	slots chan struct{}

	mu        sync.Mutex
	waiting   int
	byNetwork map[string]int // those waiting, by client network
}

// Hashes that may wait for each slot, about two seconds' worth on one core, and those of one network.
const (
	maxWaitingHashes     = 32
	maxWaitingOfANetwork = 8
)

func newHashQueue(slots int) *hashQueue {
	return &hashQueue{slots: make(chan struct{}, slots), byNetwork: map[string]int{}}
}

// acquire waits for a slot to hash. It returns 503 unavailable while too many wait, of the client's network or of all.
func (q *hashQueue) acquire(ctx context.Context, network string) (release func(), err error) {
	if err := q.enter(network); err != nil {
		return nil, err
	}
	defer q.leave(network)
	return q.wait(ctx)
}

// wait waits for a slot to hash, in no queue: the caller is known, and bounded elsewhere.
func (q *hashQueue) wait(ctx context.Context) (release func(), err error) {
	select {
	case q.slots <- struct{}{}:
		return func() { <-q.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (q *hashQueue) enter(network string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	slots := cap(q.slots)
	if q.waiting >= slots*maxWaitingHashes || q.byNetwork[network] >= slots*maxWaitingOfANetwork {
		e := apierr.Unavailable.Errorf("Too many people are signing in right now. Try again in a moment.")
		e.RetryAfter = 2 * time.Second
		return e
	}
	q.waiting++
	q.byNetwork[network]++
	return nil
}

func (q *hashQueue) leave(network string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting--
	if q.byNetwork[network]--; q.byNetwork[network] == 0 {
		delete(q.byNetwork, network)
	}
}

// HashPassword returns the hash of a client's password, for NewAccount. It is slow: call it before a
// transaction starts. A weak password is 400 invalid_request, and it is 503 unavailable while too many
// hashes wait, of the client's network or of all.
func HashPassword(ctx context.Context, from Client, password string) (string, error) {
	return createHash(ctx, password, func(ctx context.Context) (func(), error) {
		return hashes.acquire(ctx, from.Network())
	})
}

// HashNewPassword is HashPassword for an account that a developer or an operator makes: it waits as long
// as ctx lasts, because the pace of such callers has a limit by itself.
func HashNewPassword(ctx context.Context, password string) (string, error) {
	return createHash(ctx, password, hashes.wait)
}

// createHash hashes a password in the slot that acquire returns.
func createHash(ctx context.Context, password string, acquire func(context.Context) (func(), error)) (string, error) {
	if err := validatePassword(password); err != nil {
		return "", err
	}
	release, err := acquire(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	return newHash(password)
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
	normal := normalizePassword(password)
	ok, err := argon2id.ComparePasswordAndHash(normal, hash)
	if err == nil && !ok && normal != password { // hashes of before are of what was typed
		ok, err = argon2id.ComparePasswordAndHash(password, hash)
	}
	if err != nil {
		return false, fmt.Errorf("accounts: stored password: %w", err)
	}
	return ok && known, nil
}
