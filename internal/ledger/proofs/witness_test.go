package proofs

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A testWitness speaks tlog-witness over HTTP: it cosigns a checkpoint if the log's key has signed it and it has all
// leaves of the one that it cosigned last.
type testWitness struct {
	*httptest.Server
	private ed25519.PrivateKey
	key     string // NAME+HASH+KEY

	mu       sync.Mutex
	logKey   string
	tree     tlog.Tree // that was cosigned last
	requests int
	status   int // is answered instead; 0 = none
}

func newWitness(t testing.TB, name, logKey string) *testWitness {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	raw := append([]byte{cosignatureType}, public...)
	sum := sha256.Sum256([]byte(name + "\n" + string(raw)))
	w := &testWitness{
		private: private,
		logKey:  logKey,
		key:     name + "+" + hex.EncodeToString(sum[:4]) + "+" + base64.StdEncoding.EncodeToString(raw),
	}
	w.Server = httptest.NewServer(http.HandlerFunc(w.addCheckpoint))
	t.Cleanup(w.Close)
	return w
}

func (w *testWitness) addCheckpoint(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests++
	body, err := io.ReadAll(r.Body)
	head, signed, found := bytes.Cut(body, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	old, err2 := strconv.ParseInt(strings.TrimPrefix(lines[0], "old "), 10, 64)
	if w.status != 0 || err != nil || err2 != nil || !found || r.Method+r.URL.Path != "POST/prefix/add-checkpoint" {
		rw.WriteHeader(max(w.status, http.StatusBadRequest))
		return
	}
	c, err := OpenCheckpoint(string(signed), w.logKey)
	if err != nil {
		rw.WriteHeader(http.StatusForbidden)
		return
	}
	if old != w.tree.N {
		rw.Header().Set("Content-Type", "text/x.tlog.size")
		rw.WriteHeader(http.StatusConflict)
		fmt.Fprintf(rw, "%d\n", w.tree.N)
		return
	}
	var proof tlog.TreeProof
	for _, line := range lines[1:] {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			rw.WriteHeader(http.StatusBadRequest)
			return
		}
		proof = append(proof, hash)
	}
	if old > 0 && old < c.Tree.N {
		err = tlog.CheckTree(proof, c.Tree.N, c.Tree.Hash, old, w.tree.Hash)
	} else if old == c.Tree.N && c.Tree.Hash != w.tree.Hash || len(proof) > 0 {
		err = fmt.Errorf("another tree of the same size")
	}
	if err != nil {
		rw.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	w.tree = c.Tree
	text, _, _ := strings.Cut(string(signed), "\n\n")
	const seconds = 1_795_500_000
	signature := binary.BigEndian.AppendUint64(w.keyHash(), seconds)
	signature = append(signature, ed25519.Sign(w.private,
		fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s\n", seconds, text))...)
	fmt.Fprintf(rw, "— somebody.else c29tZXRoaW5n\n— %s %s\n", w.name(),
		base64.StdEncoding.EncodeToString(signature))
}

func (w *testWitness) name() string { return strings.SplitN(w.key, "+", 2)[0] }

func (w *testWitness) keyHash() []byte {
	hash, _ := hex.DecodeString(strings.SplitN(w.key, "+", 3)[1])
	return hash
}

// parse returns the Witness of what a setting says of it.
func (w *testWitness) parse(t testing.TB) *Witness {
	t.Helper()
	parsed, err := ParseWitness(" " + w.key + " " + w.URL + "/prefix/")
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// TestWitnessesCosign has checkpoints cosigned by two witnesses while the log grows, also by a node that does not know
// what they have seen. A witness that fails is left out, and the log does not wait for it; nor are those asked again
// who have cosigned.
func TestWitnessesCosign(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		private := newKey(t)
		p, l := openTest(t, d, private)
		first, second := newWitness(t, "first.example", p.Key()), newWitness(t, "second.example", p.Key())
		p.Witnesses = []*Witness{first.parse(t), second.parse(t)}
		cosigned := func(want ...*testWitness) {
			t.Helper()
			signed, err := selectState(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := OpenCheckpoint(signed, l.Key); err != nil {
				t.Error(err)
			}
			if n := strings.Count(signed, "\n—"); n != 1+len(want) {
				t.Errorf("%d signatures, want the log's and %d:\n%s", n, len(want), signed)
			}
			for _, w := range want {
				if !w.parse(t).hasSigned(signed) {
					t.Errorf("%s has not cosigned\n%s", w.name(), signed)
				}
			}
		}
		cosign := func(p *Publisher, ok bool) {
			t.Helper()
			if err := p.Cosign(t.Context()); (err == nil) != ok {
				t.Errorf("cosign: %v", err)
			}
		}
		for round := range 4 {
			topUp(t, d, "acc_1", 200*round+1)
			publish(t, p)
			cosigned()
			cosign(p, true)
			cosigned(first, second)
		}
		if first.requests != 4 {
			t.Errorf("%d requests for 4 checkpoints", first.requests)
		}
		cosign(p, true)
		if first.requests != 4 {
			t.Error("a witness that has cosigned was asked again")
		}
		other, _ := openTest(t, d, private) // a node that has just started
		other.Witnesses = []*Witness{first.parse(t), second.parse(t)}
		second.status = http.StatusInternalServerError
		topUp(t, d, "acc_1", 1)
		publish(t, other)
		cosign(other, false)
		cosigned(first)
		second.status = 0
		cosign(other, true)
		cosigned(first, second)
		r, err := l.Prove(t.Context(), "acc_1", 5) // cosignatures do not harm receipts
		if err != nil {
			t.Fatal(err)
		}
		if _, err := reread(t, r).Verify(l.Key); err != nil {
			t.Error(err)
		}
	})
}

// TestWitnessRefuses: nothing is added to a checkpoint by a witness that has seen a longer log, that has seen another
// one, or whose signature is not valid.
func TestWitnessRefuses(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		p, _ := openTest(t, d, newKey(t))
		topUp(t, d, "acc_1", 5)
		publish(t, p)
		w := newWitness(t, "first.example", p.Key())
		for name, spoil := range map[string]func(){
			"it has seen a longer log":          func() { w.tree.N = 6 },
			"it has seen another log":           func() { w.tree = tlog.Tree{N: 5} },
			"it has seen another, shorter log":  func() { w.tree = tlog.Tree{N: 3} },
			"it signs with another key":         func() { _, w.private, _ = ed25519.GenerateKey(nil) },
			"it trusts another key of the log":  func() { w.logKey = "a" },
			"it answers what is no cosignature": func() { w.status = http.StatusOK },
		} {
			private, logKey := w.private, w.logKey
			p.Witnesses = []*Witness{w.parse(t)}
			spoil()
			err := p.Cosign(t.Context())
			signed, err2 := selectState(t.Context(), d)
			if err == nil || err2 != nil || strings.Count(signed, "\n—") != 1 {
				t.Errorf("%s: %v\n%s", name, err, signed)
			}
			w.private, w.logKey, w.tree, w.status = private, logKey, tlog.Tree{}, 0
		}
	})
}

// TestWitnessSettings refuses keys and addresses that are malformed.
func TestWitnessSettings(t *testing.T) {
	t.Parallel()
	w := newWitness(t, "first.example", "")
	for _, text := range []string{"", w.key, w.key + " ftp://x", w.key + " x", "x" + w.key + " https://x",
		strings.Replace(w.key, "+B", "+C", 1) + " https://x", "a+b+c https://x"} {
		if _, err := ParseWitness(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// TestVerifyLogDemandsWitnesses: tools/verify-log tells whether a checkpoint has the cosignature of a witness.
func TestVerifyLogDemandsWitnesses(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	p, l := openTest(t, d, newKey(t))
	topUp(t, d, "acc_1", 3)
	publish(t, p)
	w, stranger := newWitness(t, "first.example", p.Key()), newWitness(t, "second.example", p.Key())
	p.Witnesses = []*Witness{w.parse(t)}
	if err := p.Cosign(t.Context()); err != nil {
		t.Fatal(err)
	}
	signed, err := selectState(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	entries, err := selectEntries(t.Context(), d, 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	writeMirror(t, folder, p.signer, entries)
	write(t, filepath.Join(folder, "checkpoint"), []byte(signed))
	if code, out := runVerifyLog(t, folder, "--key", l.Key, "--witness", w.key); code != 0 ||
		!strings.Contains(out, "cosigned by first.example") {
		t.Errorf("%d: %s", code, out)
	}
	if code, out := runVerifyLog(t, folder, "--key", l.Key, "--witness", stranger.key); code != 1 ||
		!strings.Contains(out, "not cosigned by the witness second.example") {
		t.Errorf("%d: %s", code, out)
	}
	other := strings.Replace(signed, "\n— first.example ", "\n— second.example ", 1)
	write(t, filepath.Join(folder, "checkpoint"), []byte(other))
	if code, out := runVerifyLog(t, folder, "--key", l.Key, "--witness", w.key); code != 1 {
		t.Errorf("%d: %s", code, out)
	}
}
