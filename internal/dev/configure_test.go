package dev

import (
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/config"
)

// TestDevTakesSettings sets in the environment what purser dev has a place for: each counts.
func TestDevTakesSettings(t *testing.T) {
	t.Parallel()
	for pair, read := range map[string]func(config.Config) (got, want any){
		"PRICES=/etc/prices.yaml": func(c config.Config) (any, any) { return c.PricesFile, "/etc/prices.yaml" },
		"FEE_RATE=0.1":            func(c config.Config) (any, any) { return c.Policy.Fee, money.One / 10 },
		"RISK_FLOOR=3":            func(c config.Config) (any, any) { return c.Policy.Risk.FloorMC, 3 * money.Dollar },
		"FREE_CREDIT_POOL=7":      func(c config.Config) (any, any) { return c.Policy.Free.PoolMC, 7 * money.Dollar },
		"SANDBOX_DAY=7":           func(c config.Config) (any, any) { return c.Policy.SandboxDayMC, 7 * money.Dollar },
		"VOICE_IDLE=9s":           func(c config.Config) (any, any) { return c.VoiceIdleTimeout, 9 * time.Second },
		"STRIPE_CLEARANCE=72h":    func(c config.Config) (any, any) { return c.Stripe.Clearance, 72 * time.Hour },
		"OTLP_URL=http://otel:43": func(c config.Config) (any, any) { return c.OTLP.URL, "http://otel:43" },
		"MAX_CALLS=7":             func(c config.Config) (any, any) { return c.MaxCalls, 7 },
	} {
		o := Options{Data: t.TempDir(), Listen: "127.0.0.1:0", Environ: []string{"PURSER_" + pair}}
		if _, err := ReadEnvironment(o.Environ); err != nil {
			t.Errorf("%s: %v", pair, err)
		}
		c, err := readConfig(o, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := read(c); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", pair, got, want)
		}
	}
}

// TestDevRefusesSettings refuses by name what purser dev has no place for, and says what is there instead.
func TestDevRefusesSettings(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, k := range config.Keys() {
		known[k.Name] = true
	}
	for name := range instead {
		if !known[name] {
			t.Errorf("%s is not a setting", name)
		}
	}
	_, err := ReadEnvironment([]string{"PURSER_SMTP_FROM=a@example.com", "PURSER_BASE_URL=https://a.example",
		"PURSER_FEE_RATE=much", "PURSER_LISTEN="})
	for _, want := range []string{"smtp.from: mail is shown at /dev/mail", "base_url: it follows from --listen",
		"PURSER_FEE_RATE: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "setting listen") {
		t.Errorf("an empty variable is refused: %v", err)
	}
}
