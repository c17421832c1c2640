package proofs

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/purserhq/purser/internal/base/db"
)

// A Witness cosigns checkpoints of logs that it watches, by C2SP's tlog-witness: it signs only what has all that it
// has signed before, so that nobody can be shown another history than others (decision 103).
type Witness struct {
	Key string // NAME+HASH+KEY, of Ed25519 cosignatures
	URL string // to which add-checkpoint is appended

	verifier *cosignatures
	size     int64 // of the tree that it has cosigned last, as far as we know
}

// ParseWitness reads what a setting says of a witness: its key and its URL with a space between them.
func ParseWitness(text string) (*Witness, error) {
	key, address, _ := strings.Cut(strings.TrimSpace(text), " ")
	verifier, err := newCosignatures(key)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("must be the witness's key, a space, and its URL")
	}
	return &Witness{Key: key, URL: strings.TrimSuffix(u.String(), "/"), verifier: verifier}, nil
}

// cosignatures verifies Ed25519 cosignatures of C2SP's tlog-cosignature: four bytes of the key's hash stand before
// eight of the time in seconds and 64 of the signature.
type cosignatures struct {
	name string
	hash uint32
	key  ed25519.PublicKey
}

// cosignatureType is the type of such a key.
const cosignatureType = 4

func newCosignatures(key string) (*cosignatures, error) {
	malformed := errors.New("the witness's key must be NAME+HASH+KEY, of type 4")
	name, rest, _ := strings.Cut(key, "+")
	hash, encoded, _ := strings.Cut(rest, "+")
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || name == "" || strings.ContainsAny(name, " \n") || len(raw) != 1+ed25519.PublicKeySize ||
		raw[0] != cosignatureType {
		return nil, malformed
	}
	sum := sha256.Sum256(append([]byte(name+"\n"), raw...))
	if hash != hex.EncodeToString(sum[:4]) {
		return nil, malformed
	}
	return &cosignatures{name, binary.BigEndian.Uint32(sum[:4]), raw[1:]}, nil
}

// Name implements note.Verifier.
func (c *cosignatures) Name() string { return c.name }

// KeyHash implements note.Verifier.
func (c *cosignatures) KeyHash() uint32 { return c.hash }

// Verify implements note.Verifier.
func (c *cosignatures) Verify(text, signature []byte) bool {
	if len(signature) != 8+ed25519.SignatureSize {
		return false
	}
	seconds := binary.BigEndian.Uint64(signature)
	return ed25519.Verify(c.key, cosignedText(seconds, text), signature[8:])
}

// cosignedText is what a witness signs of a checkpoint's text.
func cosignedText(seconds uint64, text []byte) []byte {
	return append(fmt.Appendf(nil, "cosignature/v1\ntime %d\n", seconds), text...)
}

// witnessTimeout bounds one request to a witness, and maxWitnessAnswer its answer.
const (
	witnessTimeout   = 5 * time.Second
	maxWitnessAnswer = 16 << 10
)

// Cosign asks the witnesses that have not cosigned the newest checkpoint to do it, and adds their cosignatures to it.
// The log does not wait for them: a checkpoint that a witness refuses, or does not answer for, is served without.
func (p *Publisher) Cosign(ctx context.Context) error {
	if len(p.Witnesses) == 0 {
		return nil
	}
	signed, err := selectState(ctx, p.DB)
	if err != nil {
		return fmt.Errorf("proofs: %w", err)
	}
	if signed == "" {
		return nil
	}
	c, err := OpenCheckpoint(signed, p.key)
	if err != nil {
		return err
	}
	var lines []string
	var failures []error
	for _, w := range p.Witnesses {
		if w.hasSigned(signed) {
			continue
		}
		line, err := p.askWitness(ctx, w, signed, c.Tree)
		if err != nil {
			failures = append(failures, fmt.Errorf("proofs: witness %s: %w", w.verifier.name, err))
			continue
		}
		w.size, lines = c.Tree.N, append(lines, line)
	}
	return errors.Join(append(failures, p.addLines(ctx, signed, lines))...)
}

// hasSigned reports whether a signed checkpoint has the witness's cosignature.
func (w *Witness) hasSigned(signed string) bool {
	n, err := note.Open([]byte(signed), note.VerifierList(w.verifier))
	return err == nil && len(n.Sigs) > 0
}

// askWitness returns the line with a witness's cosignature. A witness that has seen another size than we remember says
// which, and is asked once more.
func (p *Publisher) askWitness(ctx context.Context, w *Witness, signed string, tree tlog.Tree) (string, error) {
	line, seen, err := p.addCheckpoint(ctx, w, signed, tree)
	if err == nil && seen >= 0 {
		if seen > tree.N {
			return "", fmt.Errorf("it has cosigned %d leaves, and the log has %d: it was restored to an earlier moment",
				seen, tree.N)
		}
		w.size = seen
		line, seen, err = p.addCheckpoint(ctx, w, signed, tree)
	}
	if err == nil && seen >= 0 {
		err = errors.New("it says twice that it has seen another size")
	}
	return line, err
}

// addCheckpoint asks a witness once. It returns the line of its cosignature, or the size that the witness has seen, -1
// if it has signed.
func (p *Publisher) addCheckpoint(ctx context.Context, w *Witness, signed string, tree tlog.Tree) (line string,
	seen int64, err error) {
	body := fmt.Appendf(nil, "old %d\n", w.size)
	if w.size > 0 && w.size < tree.N {
		hashes, err := tlog.ProveTree(tree.N, w.size, tlog.TileHashReader(tree, storedTiles{ctx, p.DB}))
		if err != nil {
			return "", -1, err
		}
		for _, h := range hashes {
			body = fmt.Appendf(body, "%s\n", h)
		}
	}
	body = append(append(body, '\n'), signed...)
	ctx, cancel := context.WithTimeout(ctx, witnessTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL+"/add-checkpoint", bytes.NewReader(body))
	if err != nil {
		return "", -1, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", -1, err
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxWitnessAnswer))
	switch {
	case err != nil:
		return "", -1, err
	case answer.StatusCode == http.StatusConflict:
		seen, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil || seen < 0 {
			return "", -1, errors.New("it answers 409 without a size")
		}
		return "", seen, nil
	case answer.StatusCode != http.StatusOK:
		return "", -1, fmt.Errorf("it answers %d", answer.StatusCode)
	}
	for line := range strings.Lines(string(text)) {
		if w.hasSigned(signed + strings.TrimSuffix(line, "\n") + "\n") {
			return strings.TrimSuffix(line, "\n") + "\n", -1, nil
		}
	}
	return "", -1, errors.New("it answers without a valid cosignature")
}

// addLines adds cosignatures to a checkpoint, if it is still the newest.
func (p *Publisher) addLines(ctx context.Context, signed string, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	return p.DB.InTx(db.ForJob(ctx), func(ctx context.Context, tx *db.Tx) error {
		newest, err := lockState(ctx, tx)
		if err != nil {
			return fmt.Errorf("proofs: %w", err)
		}
		text, _, _ := strings.Cut(signed, "\n\n")
		if now, _, _ := strings.Cut(newest, "\n\n"); now != text {
			return nil // the witnesses are asked about the new one
		}
		for _, line := range lines {
			if !strings.Contains(newest, line) {
				newest += line
			}
		}
		return saveState(ctx, tx, newest)
	})
}
