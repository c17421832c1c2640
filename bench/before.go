package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// beforeSuffix marks the gateways of the older commit in tables.
const beforeSuffix = ", before"

// runSeedRole fills the database of a URL for a run of a newer commit's bench, and prints the grants as
// JSON. Each commit seeds its own databases, because their schemas differ.
func runSeedRole(args []string) error {
	if len(args) < 2 { // a newer bench may say more
		return errors.New("usage: bench seed DATABASE CONNECTIONS")
	}
	connections, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	grants, err := seedDatabase(context.Background(), args[0], connections)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(grants)
}

// startBefore builds the product and the bench of the commit in the folder b.before, and starts the
// product on an engine.
func (b *bench) startBefore(ctx context.Context, engine, upstream string) (*target, error) {
	purser, seeder := filepath.Join(b.dir, "purser-before"), filepath.Join(b.dir, "bench-before")
	for _, args := range [][]string{
		{"build", "-trimpath", "-pgo", "cmd/purser/hot.pgo", "-o", purser, "./cmd/purser"},
		{"build", "-o", seeder, "./bench"},
	} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = b.before
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", b.before, err, out)
		}
	}
	url, err := b.createDatabase(ctx, engine)
	if err != nil {
		return nil, err
	}
	d := &database{url: url}
	b.stores[engine+beforeSuffix] = d
	cmd := exec.CommandContext(ctx, seeder, "seed", url, strconv.Itoa(b.connections),
		"false") // older ones want to know whether to check every limit
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("seed the database of %s: %w", b.before, err)
	}
	if err := json.Unmarshal(out, &d.grants); err != nil {
		return nil, fmt.Errorf("seed the database of %s: %w", b.before, err)
	}
	t, err := b.startGateway(ctx, purser, engine+beforeSuffix, d, upstream)
	if err == nil {
		t.database, t.profile = nil, "" // this commit cannot read its schema, and it serves no profiles
	}
	return t, err
}

// printBefore prints for each cell how many calls a second this commit answers for each one of the
// older commit's: the median of the rounds. Each was compared with the floor right before it.
func (r *report) printBefore(w io.Writer) {
	key := func(gateway string, s sample) string { return fmt.Sprint(gateway, s.Cell, s.Clients, " ", s.Round) }
	before := map[string]float64{}
	for _, s := range r.Samples {
		before[key(s.Gateway, s)] = s.OfFloor
	}
	var compared []sample
	for _, s := range r.Samples {
		if before[key(s.Gateway+beforeSuffix, s)] > 0 {
			compared = append(compared, s)
		}
	}
	if len(compared) == 0 {
		return
	}
	label := func(s sample) string { return fmt.Sprintf("%s | %d | %s", titles[s.Cell], s.Clients, s.Gateway) }
	printTable(w, "compared with the commit before | clients | ", compared, label, []column[sample]{
		{"× calls/s", "%.2f", func(s sample) float64 { return s.OfFloor / before[key(s.Gateway+beforeSuffix, s)] }},
	})
}
