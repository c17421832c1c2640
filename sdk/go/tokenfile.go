package purser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// A FileTokenStore keeps the tokens of each connection in a file that only its owner can read. Processes of one machine
// can share it.
//
// On Unix the lock is a lock of the operating system (flock), which ends with its process. On other systems it is a
// file that exists while the lock is held; one that is older than two minutes is taken for the remains of a process
// that has crashed.
type FileTokenStore struct {
	folder string
	locks  locks
}

// NewFileTokenStore returns a store in a folder, which it creates when it is first used. Use one folder for each app.
func NewFileTokenStore(folder string) *FileTokenStore { return &FileTokenStore{folder: folder} }

var fileName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// path returns the name of a connection's file.
func (s *FileTokenStore) path(connectionID, ending string) (string, error) {
	if !fileName.MatchString(connectionID) {
		return "", fmt.Errorf("purser: %q is no id of a connection", connectionID)
	}
	return filepath.Join(s.folder, connectionID+ending), nil
}

// Load reads the tokens of a connection. It needs no lock: a file is replaced as a whole.
func (s *FileTokenStore) Load(_ context.Context, connectionID string) (tokens Tokens, err error) {
	path, err := s.path(connectionID, ".json")
	if err != nil {
		return Tokens{}, err
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return Tokens{}, ErrNoTokens
	}
	if err != nil {
		return Tokens{}, fmt.Errorf("purser: tokens: %w", err)
	}
	if err := json.Unmarshal(text, &tokens); err != nil {
		return Tokens{}, fmt.Errorf("purser: tokens: %s: %w", path, err)
	}
	return tokens, nil
}

// Save replaces the file of a connection. A crash leaves the old tokens or the new ones, never a part.
func (s *FileTokenStore) Save(_ context.Context, connectionID string, tokens Tokens) error {
	path, err := s.path(connectionID, ".json")
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(tokens, "", "  ")
	if err != nil {
		return fmt.Errorf("purser: tokens: %w", err)
	}
	if err := s.replaceFile(path, append(text, '\n')); err != nil {
		return fmt.Errorf("purser: tokens: %w", err)
	}
	return nil
}

func (s *FileTokenStore) replaceFile(path string, text []byte) error {
	if err := os.MkdirAll(s.folder, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.folder, filepath.Base(path)+"-*.new") // mode 0600
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
	return syncFolder(s.folder)
}

// Delete removes the file of a connection. The file of its lock stays, because others may wait for it.
func (s *FileTokenStore) Delete(_ context.Context, connectionID string) error {
	path, err := s.path(connectionID, ".json")
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("purser: tokens: %w", err)
	}
	return nil
}

// lockPoll is how often a process asks for a lock that another one holds.
const lockPoll = 20 * time.Millisecond

// Lock waits until no other goroutine or process has the lock of a connection.
func (s *FileTokenStore) Lock(ctx context.Context, connectionID string) (unlock func(), err error) {
	path, err := s.path(connectionID, ".lock")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.folder, 0o700); err != nil {
		return nil, fmt.Errorf("purser: tokens: %w", err)
	}
	unlockHere, err := s.locks.lock(ctx, connectionID)
	if err != nil {
		return nil, err
	}
	for {
		unlockFile, err := tryLockFile(path)
		if err == nil && unlockFile != nil {
			return func() { unlockFile(); unlockHere() }, nil
		}
		if err == nil {
			err = systemClock.sleep(ctx, lockPoll)
		}
		if err != nil {
			unlockHere()
			return nil, fmt.Errorf("purser: lock %s: %w", path, err)
		}
	}
}
