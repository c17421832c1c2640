package proofs

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// writeMirror writes the files of a log with these entries to a folder, signed by the log's own key.
func writeMirror(t testing.TB, folder string, signer note.Signer, list [][]byte) {
	t.Helper()
	reader := treeOf(t, list)
	size := int64(len(list))
	root, err := tlog.TreeHash(size, reader)
	if err != nil {
		t.Fatal(err)
	}
	text := formatCheckpoint(Checkpoint{signer.Name(), tlog.Tree{N: size, Hash: root}})
	signed, err := note.Sign(&note.Note{Text: text}, signer)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "checkpoint"), signed)
	for start := int64(0); start < size; start += 256 {
		width := min(256, size-start)
		var data []byte
		for _, entry := range list[start : start+width] {
			data = append(binary.BigEndian.AppendUint16(data, EntrySize), entry...)
		}
		path := tlog.Tile{H: tileHeight, L: -1, N: start / 256, W: int(width)}.Path()
		write(t, filepath.Join(folder, strings.Replace(path, "tile/8/data", "tile/entries", 1)), data)
	}
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// runVerifyLog runs tools/verify-log, and returns its exit code and what it printed.
func runVerifyLog(t testing.TB, args ...string) (code int, out string) {
	t.Helper()
	tool := append([]string{"../../../tools/verify-log"}, args...)
	text, err := exec.Command("/usr/bin/python3", tool...).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), string(text)
	} else if err != nil {
		t.Fatal(err)
	}
	return 0, string(text)
}

// An attack is what an operator does to a log that somebody has seen, before signing it again. saw is the number of
// leaves that were seen.
type attack struct {
	name string
	do   func(r *mathrand.Rand, list [][]byte, saw int) [][]byte
}

var attacks = []attack{
	{"rewrite", func(r *mathrand.Rand, list [][]byte, saw int) [][]byte {
		i := r.IntN(saw)
		list[i] = slices.Clone(list[i])
		list[i][r.IntN(EntrySize)] ^= byte(1 + r.IntN(255))
		return list
	}},
	{"drop", func(r *mathrand.Rand, list [][]byte, saw int) [][]byte {
		i := r.IntN(saw)
		return slices.Delete(list, i, i+1)
	}},
	{"reorder", func(r *mathrand.Rand, list [][]byte, saw int) [][]byte {
		i := r.IntN(saw)
		j := (i + 1 + r.IntN(saw-1)) % saw
		list[i], list[j] = list[j], list[i]
		return list
	}},
	{"fork: another log of the same size", func(r *mathrand.Rand, list [][]byte, saw int) [][]byte {
		list = list[:saw]
		list[saw-1] = slices.Clone(list[saw-1])
		_, _ = rand.Read(list[saw-1])
		return list
	}},
	{"fork: an account gets a second history", func(r *mathrand.Rand, list [][]byte, saw int) [][]byte {
		second := slices.Clone(list[r.IntN(saw)])
		_, _ = rand.Read(second[TagSize:])
		return append(list, second)
	}},
	{"rollback", func(r *mathrand.Rand, list [][]byte, saw int) [][]byte { return list[:r.IntN(saw)] }},
}

// TestVerifyLogFindsEachAttack lets an operator who has the log's key rewrite history, a hundred times by chance. Who
// has seen the log before finds each; a log that only grew is right.
func TestVerifyLogFindsEachAttack(t *testing.T) {
	t.Parallel()
	private := newKey(t)
	d := dbtest.Open(t, db.SQLite)
	p, l := openTest(t, d, private)
	topUp(t, d, "acc_mine", 40)
	topUp(t, d, "acc_other", 600)
	publish(t, p)
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	saw, err := selectEntries(t.Context(), d, 0, 640)
	if err != nil || len(saw) != 640 {
		t.Fatal(len(saw), err)
	}
	folder := t.TempDir()
	state, mine := filepath.Join(folder, "state"), filepath.Join(folder, "mine.json")
	history, err := l.History(t.Context(), "acc_mine")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(history)
	if err != nil {
		t.Fatal(err)
	}
	write(t, mine, text)
	writeMirror(t, folder, signer, saw)
	if code, out := runVerifyLog(t, folder, "--key", l.Key, "--state", state, "--history", mine); code != 0 ||
		!strings.Contains(out, "all 40 rows of the history are in the log") {
		t.Fatalf("the honest log: %d %s", code, out)
	}
	seen, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	topUp(t, d, "acc_mine", 3)
	topUp(t, d, "acc_other", 97)
	publish(t, p)
	now, err := selectEntries(t.Context(), d, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	grown := t.TempDir()
	writeMirror(t, grown, signer, now)
	if code, out := runVerifyLog(t, grown, "--key", l.Key, "--state", state, "--history", mine); code != 0 {
		t.Errorf("the log that grew: %d %s", code, out)
	}
	const attempts = 100
	for n := range attempts {
		a := attacks[n%len(attacks)]
		r := mathrand.New(mathrand.NewPCG(uint64(n), 7))
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			writeMirror(t, folder, signer, a.do(r, slices.Clone(now), len(saw)))
			write(t, filepath.Join(folder, "state"), seen)
			code, out := runVerifyLog(t, folder, "--key", l.Key, "--state", filepath.Join(folder, "state"))
			if code != 1 || !strings.Contains(out, "WRONG") {
				t.Errorf("attempt %d is not found: %d %s", n, code, out)
			}
			if after, err := os.ReadFile(filepath.Join(folder, "state")); err != nil || !bytes.Equal(after, seen) {
				t.Errorf("attempt %d: what was seen is forgotten: %v", n, err)
			}
		})
	}
}

// TestVerifyLogFindsWhatIsOnesOwn gives a history to somebody who sees the log for the first time, with one of the
// history's rows told differently in the log.
func TestVerifyLogFindsWhatIsOnesOwn(t *testing.T) {
	t.Parallel()
	private := newKey(t)
	d := dbtest.Open(t, db.SQLite)
	p, l := openTest(t, d, private)
	topUp(t, d, "acc_mine", 10)
	topUp(t, d, "acc_other", 20)
	publish(t, p)
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	list, err := selectEntries(t.Context(), d, 0, 30)
	if err != nil {
		t.Fatal(err)
	}
	history, err := l.History(t.Context(), "acc_mine")
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func([][]byte, *History) [][]byte{
		"a row is told differently": func(list [][]byte, _ *History) [][]byte {
			list[4] = append(slices.Clone(list[4][:TagSize]), list[5][TagSize:]...)
			return list
		},
		"a row is missing in the log": func(list [][]byte, _ *History) [][]byte { return slices.Delete(list, 3, 4) },
		"a row is missing in the history": func(list [][]byte, h *History) [][]byte {
			h.Rows = h.Rows[:9]
			return list
		},
		"a row was changed": func(list [][]byte, h *History) [][]byte {
			h.Rows[2].Columns[29].Value.Integer++
			return list
		},
	} {
		folder, changed := t.TempDir(), reread(t, history)
		writeMirror(t, folder, signer, change(slices.Clone(list), changed))
		text, err := json.Marshal(changed)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(folder, "mine.json"), text)
		code, out := runVerifyLog(t, folder, "--key", l.Key, "--history", filepath.Join(folder, "mine.json"))
		if code != 1 {
			t.Errorf("%s: %d %s", name, code, out)
		}
	}
}
