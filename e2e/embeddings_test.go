package e2e

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/ledger/rules"
)

// TestEmbeddingClients runs clients/embeddings.mjs, which makes embeddings by the official SDK for Node and by
// LangChain, and compares each charge with the ledger and with a calculation by hand.
func TestEmbeddingClients(t *testing.T) {
	t.Parallel()
	installNode(t, "clients")
	eachEmulated(t, func(t *testing.T, w *emulatedNode) {
		poor := grant(t, w.Process, "0.0001", "")
		with, err := json.Marshal(map[string]string{
			"baseURL": w.BaseURL + "/openai/v1",
			"apiKey":  w.Connection.AccessToken,
			"poorKey": poor.AccessToken,
		})
		if err != nil {
			t.Fatal(err)
		}
		node := exec.CommandContext(soon(t), supportedNode(t), "embeddings.mjs", string(with))
		var told strings.Builder
		node.Dir, node.Stderr = "clients", &told
		out, err := node.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, told.String())
		}
		settled(t, w.Process, w.Connection.AccessToken)
		var rows []int64
		for _, r := range slices.Backward(spends(t, w.Process, w.Connection.ID)) {
			rows = append(rows, int64(r.UserChargeMC))
			byCount := r.Model == "gemini-embedding-001"
			if (r.Settlement == rules.Estimated) != byCount || r.UserChargeMC > r.HoldMC {
				t.Errorf("%s: %+v", r.Model, r)
			}
		}
		// With a margin of 20 %, rounded half up, and a fee of 5 %, rounded up; of Google's rounded down. The text has
		// 7 tokens. A token costs 2 mc at the small model, 13 at the large one, 15 at Google's.
		want := []int64{
			18, 18, 18, // 7 × 2 = 14, + 3 + 1
			244,  // 15 × 13 = 195, + 39 + 10 (9.75)
			8, 8, // 3 × 2 = 6, + 1 (1.2) + 1 (0.3)
			262, // 14 × 15 = 210, + 42 + 10 (10.5)
			131, // 7 × 15 = 105, + 21 + 5 (5.25)
			11,  // 4 × 2 = 8, + 2 (1.6) + 1 (0.4)
			36,  // 14 × 2 = 28, + 6 (5.6) + 2 (1.4)
			262,
		}
		charged := read[[]int64](t, string(out))
		if !slices.Equal(charged, want) || !slices.Equal(rows, want) {
			t.Errorf("the client is told %v\nthe ledger has %v\nby hand %v", charged, rows, want)
		}
	})
}
