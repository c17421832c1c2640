package providerkeys_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/apps/providerkeys"
)

func TestASecretIsNotPrinted(t *testing.T) {
	t.Parallel()
	const plain = "sk-0123456789abcdef"
	s := providerkeys.NewSecret(plain)
	if s.Reveal() != plain {
		t.Errorf("it reveals %q", s.Reveal())
	}
	type outer struct {
		inner struct{ secret providerkeys.Secret }
	}
	var hidden outer
	hidden.inner.secret = s
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%w"} {
		for _, v := range []any{s, &s, []providerkeys.Secret{s}, map[string]any{"key": s}, hidden, &hidden} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
	}
	for _, log := range []*slog.Logger{slog.New(slog.NewTextHandler(&out, nil)),
		slog.New(slog.NewJSONHandler(&out, nil))} {
		log.Info("look", "secret", s, "in", hidden, "list", []any{s})
	}
	text, err := json.Marshal(map[string]any{"key": s})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(text)
	for _, form := range []string{plain, fmt.Sprintf("%x", plain), fmt.Sprintf("%X", plain),
		strings.Trim(fmt.Sprint([]byte(plain)), "[]")} {
		if strings.Contains(out.String(), form) {
			t.Errorf("%s stands in\n%s", form, out.String())
		}
	}
}
