package commands

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/filelock"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/retry"
)

// A login is what purser login keeps of one service and app.
type login struct {
	Server             string    `json:"server"`
	ClientID           string    `json:"client_id"`
	TokenEndpoint      string    `json:"token_endpoint"`
	RevocationEndpoint string    `json:"revocation_endpoint"`
	ConnectionID       string    `json:"connection_id"`
	AccessToken        string    `json:"access_token"`
	ExpiresAt          time.Time `json:"expires_at"` // of the access token
	RefreshToken       string    `json:"refresh_token"`
	RefreshKey         string    `json:"refresh_key,omitempty"` // Idempotency-Key of a refresh that has begun
}

// setTokens stores the tokens of a response.
func (l *login) setTokens(t tokens) {
	l.AccessToken, l.RefreshToken, l.ExpiresAt, l.RefreshKey = t.AccessToken, t.RefreshToken, t.expiresAt, ""
	if t.ConnectionID != "" {
		l.ConnectionID = t.ConnectionID
	}
}

// minValidity is how long a printed access token is valid at least. A response that comes again within its first minute
// does not say how old it is.
const minValidity = 2 * time.Minute

// isFresh reports whether the access token is valid for long enough.
func (l *login) isFresh(now time.Time) bool { return now.Add(minValidity).Before(l.ExpiresAt) }

// file returns the name of the login's file.
func (l *login) file() string {
	sum := sha256.Sum256([]byte(l.Server + "\n" + l.ClientID))
	return hex.EncodeToString(sum[:16]) + ".json"
}

// A loginStore is the folder with a file for each login. Only its owner can read it. A file is
// replaced as a whole, by the process that holds the lock of the login, so that it can be read without the lock.
type loginStore struct{ folder string }

// newLoginStore returns the store in the user's configuration folder.
func newLoginStore(environ []string) (loginStore, error) {
	folder, err := configFolder(environ)
	if err != nil {
		return loginStore{}, fmt.Errorf("%w, for the file with the tokens", err)
	}
	return loginStore{filepath.Join(folder, "logins")}, nil
}

// configFolder returns our folder in the user's configuration folder (XDG Base Directory Specification).
func configFolder(environ []string) (string, error) {
	folder := environmentVariable(environ, "XDG_CONFIG_HOME")
	if !filepath.IsAbs(folder) { // the specification ignores relative paths
		home := environmentVariable(environ, "HOME")
		if home == "" {
			return "", errors.New("HOME or XDG_CONFIG_HOME: required")
		}
		folder = filepath.Join(home, ".config")
	}
	return filepath.Join(folder, "purser"), nil
}

// list returns all logins.
func (s loginStore) list() (list []login, err error) {
	entries, err := os.ReadDir(s.folder)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue
		}
		l, err := s.read(e.Name())
		if errors.Is(err, os.ErrNotExist) { // signed out meanwhile
			continue
		} else if err != nil {
			return nil, err
		}
		list = append(list, l)
	}
	return list, nil
}

// read reads the file of a login.
func (s loginStore) read(name string) (l login, err error) {
	path := filepath.Join(s.folder, name)
	text, err := os.ReadFile(path)
	if err != nil {
		return login{}, err
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return login{}, fmt.Errorf("%s: is no login; delete it and run purser login: %w", path, err)
	}
	return l, nil
}

// write replaces the file of a login.
func (s loginStore) write(l login) (err error) {
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(s.folder, l.file()), append(text, '\n'))
}

// replaceFile writes a file of mode 0600. A crash leaves the old or the new one, never a part.
func replaceFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-*.new") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncFolder(filepath.Dir(path))
}

// remove deletes the file of a login. The file of its lock stays, because others may wait for it.
func (s loginStore) remove(l login) error {
	if err := os.Remove(filepath.Join(s.folder, l.file())); err != nil {
		return err
	}
	return syncFolder(s.folder)
}

// lockRetry is how often a process asks for a lock that another one holds.
const lockRetry = 20 * time.Millisecond

// lock waits until no other process holds the lock of a login. The lock ends with unlock or with the process.
func (s loginStore) lock(ctx context.Context, l login) (unlock func(), err error) {
	if err := os.MkdirAll(s.folder, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(s.folder, strings.TrimSuffix(l.file(), ".json")+".lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		locked, err := filelock.TryLock(f)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		if locked {
			return func() { _ = f.Close() }, nil // closing unlocks
		}
		if !retry.Sleep(ctx, lockRetry) {
			return nil, errors.Join(errors.New("another purser process is refreshing this login and does not end"),
				f.Close())
		}
	}
}

// replace stores a login and returns the one that it replaces, if any.
func (s loginStore) replace(ctx context.Context, l login) (old login, err error) {
	unlock, err := s.lock(ctx, l)
	if err != nil {
		return login{}, err
	}
	defer unlock()
	if old, err = s.read(l.file()); err != nil {
		old = login{} // none, or one that can't be read
	}
	return old, s.write(l)
}

// refresh returns the login with a fresh access token. One process at a time exchanges the refresh token, which works
// once; those that waited for it find its result in the file.
func (s loginStore) refresh(ctx context.Context, oauth *oauthClient, l login) (login, error) {
	unlock, err := s.lock(ctx, l)
	if err != nil {
		return login{}, err
	}
	defer unlock()
	if l, err = s.read(l.file()); errors.Is(err, os.ErrNotExist) {
		return login{}, errSignedOut
	} else if err != nil || l.isFresh(time.Now()) {
		return l, err
	}
	isResumed := l.RefreshKey != ""
	if l, err = s.exchange(ctx, oauth, l); err != nil || !isResumed || l.isFresh(time.Now()) {
		return l, err
	}
	return s.exchange(ctx, oauth, l) // the response that came again was old
}

// exchange replaces the tokens of a login, which is locked. It writes the Idempotency-Key into the file before it sends
// it: when the response is lost, or can't be stored, the next process sends the same key and gets the same tokens
// (decision 035). A disk that is full ends it before anything is sent.
func (s loginStore) exchange(ctx context.Context, oauth *oauthClient, l login) (login, error) {
	if l.RefreshKey == "" {
		l.RefreshKey = id.NewUUID()
		if err := s.write(l); err != nil {
			return login{}, err
		}
	}
	t, err := oauth.refresh(ctx, l)
	if err != nil {
		return login{}, err
	}
	l.setTokens(t)
	if err := s.writeAgain(ctx, l); err != nil {
		return login{}, fmt.Errorf("the new tokens can’t be stored, and nothing is lost; run it again: %w", err)
	}
	return l, nil
}

// maxWriteTries is how often tokens that the service has issued are written.
const maxWriteTries = 4

// writeAgain replaces the file of a login, also when that fails at first.
func (s loginStore) writeAgain(ctx context.Context, l login) error {
	backoff := retry.Backoff{First: 100 * time.Millisecond, Max: time.Second}
	for tries := 1; ; tries++ {
		err := s.write(l)
		if err == nil || tries == maxWriteTries || !retry.Sleep(ctx, backoff.Next()) {
			return err
		}
	}
}
