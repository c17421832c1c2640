package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/purserhq/purser/internal/base/db"
)

// A SettingsDifference is a setting that all nodes must have alike, and that living nodes have otherwise.
type SettingsDifference struct {
	Setting string
	Nodes   [][]string // ids of nodes that agree, the largest group first
}

// SetSettings says, for other nodes, what this one must have alike: digests by the names of settings. Each renewal of
// the lease stores them.
func (n *Node) SetSettings(digests map[string]string) error {
	text, err := json.Marshal(digests)
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.settings = string(text)
	n.mu.Unlock()
	return nil
}

// ListSettingsDifferences compares the settings of living nodes. A setting that a node does not know, as one of an
// older version of the program, does not differ.
func ListSettingsDifferences(ctx context.Context, q db.Queryer, nowUS int64) (list []SettingsDifference, err error) {
	type row struct{ id, settings string }
	rows, err := db.QueryAll(ctx, q, db.ScanFields(func(r *row) []any { return []any{&r.id, &r.settings} }),
		`SELECT id, settings FROM nodes WHERE lease_us > $1 AND settings <> '' ORDER BY id`, nowUS)
	if err != nil {
		return nil, err
	}
	nodes := map[string]map[string][]string{} // by setting, by digest
	for _, r := range rows {
		digests := map[string]string{}
		if err := json.Unmarshal([]byte(r.settings), &digests); err != nil {
			return nil, fmt.Errorf("settings of node %s: %w", r.id, err)
		}
		for name, digest := range digests {
			if nodes[name] == nil {
				nodes[name] = map[string][]string{}
			}
			nodes[name][digest] = append(nodes[name][digest], r.id)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if len(nodes[name]) < 2 {
			continue
		}
		groups := slices.SortedFunc(maps.Values(nodes[name]), func(a, b []string) int {
			if len(a) != len(b) {
				return len(b) - len(a)
			}
			return slices.Compare(a, b)
		})
		list = append(list, SettingsDifference{Setting: name, Nodes: groups})
	}
	return list, nil
}
