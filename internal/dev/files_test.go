package dev

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// The data folder's envelope key is made once, whoever starts at once, and only
// its owner may read it.
func TestDevKeyIsMadeOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "envelope.key")
	keys := make([][]byte, 16)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() {
			var err error
			if keys[i], err = envelopeKey(path); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, key := range keys {
		if len(key) != 32 || !bytes.Equal(key, keys[0]) || bytes.Equal(key, make([]byte, 32)) {
			t.Fatalf("got the keys %x", keys)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("left behind: %v (%v)", files, err)
	}
	if again, err := envelopeKey(path); err != nil || !bytes.Equal(again, keys[0]) {
		t.Errorf("read again: %x (%v), was %x", again, err, keys[0])
	}
}

func TestDevKeyOfAnotherLengthIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "envelope.key")
	if err := os.WriteFile(path, make([]byte, 31), 0o600); err != nil {
		t.Fatal(err)
	}
	if key, err := envelopeKey(path); err == nil {
		t.Errorf("took %x", key)
	}
}
