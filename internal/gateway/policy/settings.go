package policy

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/tiers"
)

// Default is the policy of an operator who has set nothing.
var Default = Policy{
	Fee:               money.One / 20,
	Free:              tiers.DefaultFreeCredit,
	Risk:              limits.DefaultRiskThresholds,
	SandboxDayMC:      tiers.DefaultSandboxDayMC,
	SandboxTotalDayMC: tiers.DefaultSandboxTotalDayMC,
	EmptyAnswersDayMC: money.Dollar,

	UnbilledCallsDayMC: money.Dollar,
}

// A Setting is a part of a policy, as text, by its name in purser.yaml.
type Setting struct {
	Name, Help string
	get        func(Policy) string
	set        func(*Policy, string) error
}

// Set changes the setting in a policy. The error says what the text must be.
func (s Setting) Set(p *Policy, text string) error { return s.set(p, text) }

// Text returns the setting of a policy, which Set reads.
func (s Setting) Text(p Policy) string { return s.get(p) }

// Settings are all parts of a policy.
var Settings = []Setting{
	{
		"fee_rate", "service fee as a share of the provider's cost, such as 0.05",
		func(p Policy) string { return p.Fee.String() },
		func(p *Policy, text string) error {
			rate, err := money.ParseRate(text)
			if err == nil && rate > money.One {
				err = errors.New("must be at most 1")
			}
			if err == nil {
				p.Fee = rate
			}
			return err
		},
	},
	dollars("free_credit.pool", "free credit of each live app per month in dollars, such as 50; 0 = none",
		func(p *Policy) *money.MC { return &p.Free.PoolMC }),
	dollars("free_credit.on_app", "free credit of a user on one app in dollars",
		func(p *Policy) *money.MC { return &p.Free.OnAppMC }),
	dollars("free_credit.on_all", "free credit of a user on all apps in dollars",
		func(p *Policy) *money.MC { return &p.Free.OnAllMC }),
	dollars("sandbox_day", "what live models may cost the sandbox of a developer in 24 hours, in dollars",
		func(p *Policy) *money.MC { return &p.SandboxDayMC }),
	dollars("sandbox_total_day", "what live models may cost all sandboxes together in 24 hours, in dollars",
		func(p *Policy) *money.MC { return &p.SandboxTotalDayMC }),
	dollars("empty_answers_day", "what empty answers may cost the service on a connection in 24 hours, in dollars: "+
		"up to it they are free; 0 = they are charged",
		func(p *Policy) *money.MC { return &p.EmptyAnswersDayMC }),
	dollars("unbilled_calls_day", "what calls of a user on an app that end before their answers begin may cost the "+
		"service in 24 hours, in dollars: beyond it, those that were left or stopped are charged for their input; "+
		"0 = all are",
		func(p *Policy) *money.MC { return &p.UnbilledCallsDayMC }),
	dollars("risk.floor", "least spend of ten minutes that counts as usual, in dollars",
		func(p *Policy) *money.MC { return &p.Risk.FloorMC }),
	multiple("risk.warn", "times the usual spend beyond which the app is warned",
		func(p *Policy) *int64 { return &p.Risk.Warn }),
	multiple("risk.throttle", "times the usual spend beyond which calls wait",
		func(p *Policy) *int64 { return &p.Risk.Throttle }),
	multiple("risk.freeze", "times the usual spend beyond which a connection is frozen",
		func(p *Policy) *int64 { return &p.Risk.Freeze }),
}

// dollars returns a setting whose value is an amount.
func dollars(name, help string, at func(*Policy) *money.MC) Setting {
	return Setting{
		name, help,
		func(p Policy) string { return (*at(&p)).Decimal() },
		func(p *Policy, text string) error {
			amount, err := money.Parse(text)
			if err != nil {
				return errors.New("must be an amount in dollars, such as 12.50")
			}
			*at(p) = amount
			return nil
		},
	}
}

// multiple returns a setting whose value is a multiple.
func multiple(name, help string, at func(*Policy) *int64) Setting {
	return Setting{
		name, help,
		func(p Policy) string { return strconv.FormatInt(*at(&p), 10) },
		func(p *Policy, text string) error {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < 1 || n > 1_000_000 {
				return errors.New("must be a whole number from 1 to 1000000")
			}
			*at(p) = n
			return nil
		},
	}
}

// Change sets settings by their names. The error names the first that cannot be, in the order of Settings.
func (p *Policy) Change(values map[string]string) error {
	known := 0
	for _, s := range Settings {
		text, ok := values[s.Name]
		if !ok {
			continue
		}
		known++
		if err := s.set(p, text); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	if known < len(values) {
		for name := range values {
			if !IsSetting(name) {
				return fmt.Errorf("%s: is no such setting", name)
			}
		}
	}
	return nil
}

// IsSetting reports whether there is a setting of a name.
func IsSetting(name string) bool {
	for _, s := range Settings {
		if s.Name == name {
			return true
		}
	}
	return false
}

// Values returns all settings by their names.
func (p Policy) Values() map[string]string {
	values := make(map[string]string, len(Settings))
	for _, s := range Settings {
		values[s.Name] = s.get(p)
	}
	return values
}

// ChangesFrom returns the settings that another policy has otherwise.
func (p Policy) ChangesFrom(other Policy) map[string]string {
	changes := map[string]string{}
	for _, s := range Settings {
		if text := s.get(p); text != s.get(other) {
			changes[s.Name] = text
		}
	}
	return changes
}
