package proofs

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/seal"
)

// batchRows is the number of rows that one transaction appends. On SQLite calls wait for it, so it takes milliseconds.
const batchRows = 300

// A Publisher appends the ledger's new rows to the log, and signs checkpoints. The nodes of a database have one key;
// any of them may publish.
type Publisher struct {
	DB        *db.DB
	Witnesses []*Witness // whom Cosign asks
	signer    note.Signer
	key       string
}

// OpenPublisher returns the Publisher of a database. The first one makes the log's key, which is named after the host
// of baseURL for ever, and stores it sealed.
func OpenPublisher(ctx context.Context, d *db.DB, box *seal.Box, baseURL string) (*Publisher, error) {
	u, err := url.Parse(baseURL)
	if err != nil {
		return nil, fmt.Errorf("proofs: %w", err)
	}
	private, _, err := note.GenerateKey(rand.Reader, u.Host+"/ledger")
	if err != nil {
		return nil, fmt.Errorf("proofs: %w", err)
	}
	opened, err := box.Keep(ctx, d, "log_key", []byte(private))
	if err != nil {
		return nil, fmt.Errorf("proofs: the log's key: %w", err)
	}
	return NewPublisher(d, string(opened))
}

// NewPublisher returns a Publisher with a private key.
func NewPublisher(d *db.DB, private string) (*Publisher, error) {
	signer, err := note.NewSigner(private)
	if err != nil {
		return nil, fmt.Errorf("proofs: the log's key: %w", err)
	}
	key, err := verifierKey(private)
	if err != nil {
		return nil, err
	}
	return &Publisher{DB: d, signer: signer, key: key}, nil
}

// Key returns the key that verifies checkpoints, as text: NAME+HASH+KEY.
func (p *Publisher) Key() string { return p.key }

// Publish appends all rows that the ledger has and the log has not, account after account.
func (p *Publisher) Publish(ctx context.Context) error {
	ctx = db.ForJob(ctx)
	for after := ""; ; {
		accounts, err := p.findNew(ctx, after, batchRows)
		if err != nil {
			return fmt.Errorf("proofs: %w", err)
		}
		if len(accounts) == 0 {
			return p.publishFirst(ctx)
		}
		for n := batchRows; n == batchRows; { // until the log has all rows of these accounts
			if n, err = p.publishBatch(ctx, accounts); err != nil {
				return err
			}
		}
		after = accounts[len(accounts)-1]
	}
}

// publishFirst signs the checkpoint of an empty log, if the log has none.
func (p *Publisher) publishFirst(ctx context.Context) error {
	exists, err := hasCheckpoint(ctx, p.DB)
	if err != nil || exists {
		return err
	}
	_, err = p.publishBatch(ctx, nil)
	return err
}

// publishBatch appends up to batchRows rows of accounts, and returns their number.
func (p *Publisher) publishBatch(ctx context.Context, accounts []string) (n int, err error) {
	err = p.DB.InTurn(ctx, func() error {
		return p.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
			n, err = p.append(ctx, tx, accounts)
			return err
		})
	})
	return n, err
}

func (p *Publisher) append(ctx context.Context, tx *db.Tx, accounts []string) (n int, err error) {
	signed, err := lockState(ctx, tx)
	if err != nil {
		return 0, fmt.Errorf("proofs: %w", err)
	}
	var tree tlog.Tree
	if signed != "" {
		c, err := OpenCheckpoint(signed, p.key)
		if err != nil {
			return 0, err
		}
		tree = c.Tree
	}
	list, err := selectPending(ctx, tx, accounts, batchRows)
	if err != nil {
		return 0, fmt.Errorf("proofs: %w", err)
	}
	if len(list) == 0 && signed != "" {
		return 0, nil
	}
	g := grow(ctx, tx, tree)
	if err := appendRows(ctx, tx, g, list); err != nil {
		return 0, err
	}
	return len(list), p.saveTree(ctx, tx, g, tree.N)
}

// appendRows adds the leaves of rows, in the order of their accounts, to the tree, and stores their entries.
func appendRows(ctx context.Context, tx *db.Tx, g *growing, list []pendingRow) error {
	var leaves []leaf
	var accounts []any // with their secrets and last rows
	for i, row := range list {
		secret := row.secret
		if secret == nil && i > 0 && list[i-1].accountID == row.accountID {
			secret = list[i-1].secret
		} else if secret == nil {
			secret = newSecret()
		}
		list[i].secret = secret
		entry := newEntry(secret, row.seq, row.hash)
		leaves = append(leaves, leaf{g.size, row.accountID, row.seq, entry})
		if err := g.add(entry); err != nil {
			return err
		}
		if i+1 == len(list) || list[i+1].accountID != row.accountID {
			accounts = append(accounts, row.accountID, secret, row.seq)
		}
	}
	if len(list) == 0 {
		return nil
	}
	if err := saveAccounts(ctx, tx, accounts); err != nil {
		return fmt.Errorf("proofs: %w", err)
	}
	if err := insertLeaves(ctx, tx, leaves); err != nil {
		return fmt.Errorf("proofs: %w", err)
	}
	return nil
}

// saveTree stores the tiles that have changed since the tree had size before, and signs a checkpoint.
func (p *Publisher) saveTree(ctx context.Context, tx *db.Tx, g *growing, before int64) error {
	tiles, hashes, err := g.tiles(before)
	if err != nil {
		return err
	}
	for i, t := range tiles {
		if err := saveTile(ctx, tx, t.L, t.N, hashes[i]); err != nil {
			return fmt.Errorf("proofs: %w", err)
		}
	}
	root, err := tlog.TreeHash(g.size, g)
	if err != nil {
		return fmt.Errorf("proofs: %w", err)
	}
	text := formatCheckpoint(Checkpoint{p.signer.Name(), tlog.Tree{N: g.size, Hash: root}})
	signed, err := note.Sign(&note.Note{Text: text}, p.signer)
	if err != nil {
		return fmt.Errorf("proofs: %w", err)
	}
	if err := saveState(ctx, tx, string(signed)); err != nil {
		return fmt.Errorf("proofs: %w", err)
	}
	return nil
}

// verifierKey returns the public key of a private one.
func verifierKey(private string) (string, error) {
	parts := strings.SplitN(private, "+", 5)
	if len(parts) != 5 {
		return "", errors.New("proofs: the log's key is malformed")
	}
	raw, err := base64.StdEncoding.DecodeString(parts[4])
	if err != nil || len(raw) != 1+ed25519.SeedSize {
		return "", errors.New("proofs: the log's key is malformed")
	}
	public, _ := ed25519.NewKeyFromSeed(raw[1:]).Public().(ed25519.PublicKey)
	return note.NewEd25519VerifierKey(parts[2], public)
}
