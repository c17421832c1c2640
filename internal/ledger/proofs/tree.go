package proofs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/purserhq/purser/internal/base/db"
)

// tileHeight is the height of a tile: 256 hashes.
const tileHeight = 8

// A storedTiles reads tiles from the database, for tlog, which verifies what it reads against the tree's hash.
type storedTiles struct {
	ctx context.Context
	q   db.Queryer
}

func (s storedTiles) Height() int { return tileHeight }

func (s storedTiles) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var list [][]byte
	for _, t := range tiles {
		hashes, err := readTile(s.ctx, s.q, t)
		if err != nil {
			return nil, err
		}
		list = append(list, hashes)
	}
	return list, nil
}

// SaveTiles is for caches.
func (s storedTiles) SaveTiles([]tlog.Tile, [][]byte) {}

// readTile returns the hashes of a tile, which is full or the first part of a tile. It is sql.ErrNoRows if the log is
// not as long.
func readTile(ctx context.Context, q db.Queryer, t tlog.Tile) ([]byte, error) {
	hashes, err := selectTile(ctx, q, t.L, t.N)
	if err != nil {
		return nil, err
	}
	size := t.W * tlog.HashSize
	if len(hashes) < size {
		return nil, sql.ErrNoRows
	}
	return hashes[:size], nil
}

// A growing tree is the stored one with leaves appended to it in memory.
type growing struct {
	size int64
	old  tlog.HashReader // of the stored tree; nil if it is empty
	from int64           // the first index of a hash that is not stored
	new  []tlog.Hash
}

// grow returns a growing tree over the stored one.
func grow(ctx context.Context, q db.Queryer, tree tlog.Tree) *growing {
	g := &growing{size: tree.N, from: tlog.StoredHashCount(tree.N)}
	if tree.N > 0 {
		g.old = tlog.TileHashReader(tree, storedTiles{ctx, q})
	}
	return g
}

// ReadHashes returns hashes by their index of storage.
func (g *growing) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	list := make([]tlog.Hash, len(indexes))
	var stored, places []int64
	for i, index := range indexes {
		if index >= g.from {
			if index-g.from >= int64(len(g.new)) {
				return nil, fmt.Errorf("proofs: the tree has no hash %d", index)
			}
			list[i] = g.new[index-g.from]
		} else {
			stored, places = append(stored, index), append(places, int64(i))
		}
	}
	if len(stored) == 0 {
		return list, nil
	}
	hashes, err := g.old.ReadHashes(stored)
	if err != nil {
		return nil, fmt.Errorf("proofs: %w", err)
	}
	for i, h := range hashes {
		list[places[i]] = h
	}
	return list, nil
}

// add appends the leaf of an entry.
func (g *growing) add(entry []byte) error {
	hashes, err := tlog.StoredHashesForRecordHash(g.size, tlog.RecordHash(entry), g)
	if err != nil {
		return fmt.Errorf("proofs: %w", err)
	}
	g.new = append(g.new, hashes...)
	g.size++
	return nil
}

// tiles returns the tiles that have changed since the tree had size before, with their hashes.
func (g *growing) tiles(before int64) (tiles []tlog.Tile, hashes [][]byte, err error) {
	for _, t := range tlog.NewTiles(tileHeight, before, g.size) {
		data, err := tlog.ReadTileData(t, g)
		if err != nil {
			return nil, nil, fmt.Errorf("proofs: %w", err)
		}
		tiles, hashes = append(tiles, t), append(hashes, data)
	}
	return tiles, hashes, nil
}

// A Checkpoint is a signed statement about the whole log.
type Checkpoint struct {
	Origin string // the log's name
	Tree   tlog.Tree
}

// formatCheckpoint returns the text of a checkpoint, to be signed.
func formatCheckpoint(c Checkpoint) string {
	return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Tree.N, c.Tree.Hash)
}

// OpenCheckpoint returns a checkpoint that the key has signed.
func OpenCheckpoint(signed, key string) (Checkpoint, error) {
	verifier, err := note.NewVerifier(key)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("proofs: the log's key: %w", err)
	}
	n, err := note.Open([]byte(signed), note.VerifierList(verifier))
	if err != nil {
		return Checkpoint{}, fmt.Errorf("proofs: the checkpoint: %w", err)
	}
	c, err := parseCheckpoint(n.Text)
	if err == nil && c.Origin != verifier.Name() {
		err = errors.New("proofs: the checkpoint is of another log than its key")
	}
	return c, err
}

// parseCheckpoint reads the text of a checkpoint.
func parseCheckpoint(text string) (c Checkpoint, err error) {
	lines := strings.Split(text, "\n")
	if len(lines) < 4 || lines[len(lines)-1] != "" {
		return c, errors.New("proofs: the checkpoint has too few lines")
	}
	c.Origin = lines[0]
	if c.Tree.N, err = strconv.ParseInt(lines[1], 10, 64); err != nil || c.Tree.N < 0 ||
		lines[1] != strconv.FormatInt(c.Tree.N, 10) {
		return c, fmt.Errorf("proofs: the checkpoint’s size is %q", lines[1])
	}
	if c.Tree.Hash, err = tlog.ParseHash(lines[2]); err != nil {
		return c, fmt.Errorf("proofs: the checkpoint’s hash: %w", err)
	}
	return c, nil
}
