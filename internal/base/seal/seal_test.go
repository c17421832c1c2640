package seal_test

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/purserhq/purser/internal/base/seal"
)

func box(t *testing.T, fill byte) *seal.Box {
	t.Helper()
	b, err := seal.New(bytes.Repeat([]byte{fill}, seal.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var here = seal.Place{"provider_keys", "sealed", "wac_1", "openai"}

func sealed(t *testing.T, b *seal.Box, plain string) []byte {
	t.Helper()
	s, err := b.Seal([]byte(plain), here)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOpensWhereItWasSealed(t *testing.T) {
	t.Parallel()
	b := box(t, 1)
	for _, plain := range []string{"", "x", "sk-proj-0123456789"} { // one byte may well turn up in what is sealed
		first, second := sealed(t, b, plain), sealed(t, b, plain)
		if bytes.Equal(first, second) || len(plain) > 1 && bytes.Contains(first, []byte(plain)) {
			t.Errorf("%q is sealed as %x and %x", plain, first, second)
		}
		if got, err := b.Open(first, here); err != nil || string(got) != plain {
			t.Errorf("%q opens as %q (%v)", plain, got, err)
		}
	}
}

// A value that was sealed with another library, under the same key and for the same place, opens: the bytes are those
// of XChaCha20-Poly1305.
func TestOpensWhatWasSealedBefore(t *testing.T) {
	t.Parallel()
	old, err := hex.DecodeString("01ae1abb1d230ff1c85333a5470495c926991a35afc6d57cc2d66a25772" +
		"df4d4c0b16f2ffbbb955d4902c893f46adcc242573ec27d44aa94d027d5")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := box(t, 1).Open(old, here); err != nil || string(got) != "sk-proj-0123456789" {
		t.Errorf("it opens as %q (%v)", got, err)
	}
}

// Places that are alike when their parts are put together are still not the same.
func TestDoesNotOpenElsewhere(t *testing.T) {
	t.Parallel()
	b := box(t, 1)
	s := sealed(t, b, "sk-proj-0123456789")
	for name, at := range map[string]seal.Place{
		"another row":       {"provider_keys", "sealed", "wac_2", "openai"},
		"another column":    {"provider_keys", "last4", "wac_1", "openai"},
		"another table":     {"webhooks", "sealed", "wac_1", "openai"},
		"parts joined":      {"provider_keys", "sealed", "wac_1openai"},
		"parts split":       {"provider_keys", "sealed", "wac_1", "open", "ai"},
		"a separator in it": {"provider_keys", "sealed", `wac_1" "openai`},
		"nowhere":           nil,
	} {
		if got, err := b.Open(s, at); err == nil || got != nil {
			t.Errorf("%s: opens as %q", name, got)
		}
	}
	if got, err := box(t, 2).Open(s, here); err == nil {
		t.Errorf("another envelope key: opens as %q", got)
	}
}

func TestAChangedByteDoesNotOpen(t *testing.T) {
	t.Parallel()
	b := box(t, 1)
	s := sealed(t, b, "sk-proj-0123456789")
	for i := range s {
		changed := bytes.Clone(s)
		changed[i] ^= 1
		if _, err := b.Open(changed, here); err == nil {
			t.Errorf("byte %d may be changed", i)
		}
		if _, err := b.Open(s[:i], here); err == nil {
			t.Errorf("%d bytes are enough", i)
		}
	}
}

func TestKeysOfOtherLengthsAreRefused(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 16, 31, 33, 64} {
		if _, err := seal.New(make([]byte, n)); err == nil {
			t.Errorf("a key of %d bytes is taken", n)
		}
	}
}
