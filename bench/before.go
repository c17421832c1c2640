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
	if len(args) != 3 {
		return errors.New("usage: bench seed DATABASE CONNECTIONS LIMITS")
	}
	connections, err1 := strconv.Atoi(args[1])
	limits, err2 := strconv.ParseBool(args[2])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	grants, err := seedDatabase(context.Background(), args[0], connections, connectionsOfApp, limits)
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
	cmd := exec.CommandContext(ctx, seeder, "seed", url, strconv.Itoa(b.connections), strconv.FormatBool(b.limits))
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
		t.database = nil // this commit cannot read its schema
	}
	return t, err
}

// printBefore prints for each cell how many calls a second this commit answers for each one of the
// older commit's: the median of the rounds. Each was compared with the floor right before it.
func (r *report) printBefore(w io.Writer) {
	type key struct {
		gateway, cell string
		clients       int
	}
	rounds := map[key]map[int]float64{}
	for _, s := range r.Samples {
		k := key{s.Gateway, s.Cell, s.Clients}
		if rounds[k] == nil {
			rounds[k] = map[int]float64{}
		}
		rounds[k][s.Round] = s.OfFloor
	}
	title := "\ncalls per second compared with the commit before, each as a share of the floor's\n"
	printed := map[key]bool{}
	for _, s := range r.Samples {
		k := key{s.Gateway, s.Cell, s.Clients}
		before := rounds[key{s.Gateway + beforeSuffix, s.Cell, s.Clients}]
		if before == nil || printed[k] {
			continue
		}
		printed[k] = true
		var ratios []float64
		for round, share := range rounds[k] {
			ratios = append(ratios, share/before[round])
		}
		fmt.Fprintf(w, "%s%-42s%4d clients  %-18s%6.2f\n", title, titles[s.Cell], s.Clients, s.Gateway,
			median(ratios, func(ratio float64) float64 { return ratio }))
		title = ""
	}
}
