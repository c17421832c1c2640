package commands

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/catalog"
)

// listedPrices are what somebody else says that a model costs, for a million tokens, by the names of a file of prices.
type listedPrices map[string]money.MC

// priceNames are the prices that lists have, in the order in which they are shown, with their names in JSON maps of
// costs per token, as LiteLLM publishes one.
var priceNames = []struct {
	name, perToken string
	of             func(catalog.Step) money.MC
}{
	{"input", "input_cost_per_token", func(s catalog.Step) money.MC { return s.Input }},
	{"cached", "cache_read_input_token_cost", func(s catalog.Step) money.MC { return s.Cached }},
	{"cache_write", "cache_creation_input_token_cost", func(s catalog.Step) money.MC { return s.CacheWrite }},
	{"output", "output_cost_per_token", func(s catalog.Step) money.MC { return s.Output }},
}

// readPriceList reads a list by the ids of its models: CSV with a head (model, input, cached, cache_write, output:
// dollars for a million tokens), or a JSON object of costs per token by model.
func readPriceList(text []byte) (map[string]listedPrices, error) {
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		return readPriceMap(text)
	}
	r := csv.NewReader(bytes.NewReader(text))
	r.FieldsPerRecord, r.TrimLeadingSpace = -1, true
	head, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("the list is neither JSON nor CSV with a head: %w", err)
	}
	column := map[string]int{}
	for i, name := range head {
		column[strings.ToLower(strings.TrimSpace(name))] = i
	}
	model, ok := column["model"]
	if !ok {
		return nil, errors.New("the list has no column \"model\"; its head may have model, input, cached, " +
			"cache_write, output")
	}
	list := map[string]listedPrices{}
	for {
		row, err := r.Read()
		if err == io.EOF {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		line, _ := r.FieldPos(0)
		prices := listedPrices{}
		for _, p := range priceNames {
			i, ok := column[p.name]
			if !ok || i >= len(row) || strings.TrimSpace(row[i]) == "" {
				continue
			}
			if prices[p.name], err = money.Parse(row[i]); err != nil {
				return nil, fmt.Errorf("line %d: %s: %w", line, p.name, err)
			}
		}
		if model < len(row) && len(prices) > 0 {
			list[cutProvider(row[model])] = prices
		}
	}
}

// readPriceMap reads a JSON object of costs per token. It leaves out models without such costs.
func readPriceMap(text []byte) (map[string]listedPrices, error) {
	var models map[string]map[string]json.RawMessage
	if err := json.Unmarshal(text, &models); err != nil {
		return nil, fmt.Errorf("the list is not a JSON object of models: %w", err)
	}
	list := map[string]listedPrices{}
	for _, id := range slices.Sorted(maps.Keys(models)) {
		prices := listedPrices{}
		for _, p := range priceNames {
			raw := string(models[id][p.perToken])
			if raw == "" || raw == "null" {
				continue
			}
			cost, ok := new(big.Rat).SetString(raw)
			if !ok {
				return nil, fmt.Errorf("%s: %s: %s is not a number", id, p.perToken, raw)
			}
			cost.Mul(cost, new(big.Rat).SetInt64(1_000_000*int64(money.Dollar)))
			mc := new(big.Int).Quo(cost.Num(), cost.Denom())
			if !mc.IsInt64() || mc.Sign() < 0 {
				return nil, fmt.Errorf("%s: %s: %s is no cost of a token", id, p.perToken, raw)
			}
			prices[p.name] = money.MC(mc.Int64())
		}
		if len(prices) > 0 {
			list[cutProvider(id)] = prices
		}
	}
	return list, nil
}

// cutProvider returns the id of a model without the name of a provider before it, as in openai/gpt-6-luna.
func cutProvider(id string) string {
	id = strings.TrimSpace(id)
	return id[strings.LastIndexByte(id, '/')+1:]
}

// compareWithList prints how the prices in force differ from a list. It fails if one differs by more than a share, or
// if no model is in both.
func compareWithList(out io.Writer, book *catalog.Catalog, list map[string]listedPrices, tolerance money.PPM,
	now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	compared, differing := 0, 0
	var missing []string
	for _, id := range modelIDs(book) {
		model, rates, ok := book.Find(id, now)
		if !ok {
			continue
		}
		listed, ok := list[model.ID]
		if !ok {
			missing = append(missing, id)
			continue
		}
		compared++
		for _, p := range priceNames {
			ours, theirs := p.of(rates.Steps[0]), listed[p.name]
			if _, has := listed[p.name]; !has || isWithin(ours, theirs, tolerance) {
				continue
			}
			differing++
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s here\t%s in the list\n", id, p.name, ours.Display(), theirs.Display())
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%d models compared, %d prices differ by more than %s.\n", compared, differing,
		tolerance)
	if len(missing) > 0 && err == nil {
		_, err = fmt.Fprintf(out, "Not in the list: %s.\n", strings.Join(missing, ", "))
	}
	switch {
	case err != nil:
		return err
	case compared == 0:
		return exitError{errors.New("no model with a price is in the list"), exitFailed}
	case differing > 0:
		return exitError{nil, exitFailed}
	}
	return nil
}

// isWithin reports whether two prices differ by at most a share of the larger one.
func isWithin(a, b money.MC, share money.PPM) bool {
	allowed, err := money.Share(max(a, b), share, money.Down)
	return err == nil && max(a-b, b-a) <= allowed
}
