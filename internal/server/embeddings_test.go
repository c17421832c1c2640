package server_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/apptest"
	"github.com/purserhq/purser/internal/testkit/calltest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// harbour has 7 tokens of o200k_base.
const harbour = "The harbour keeps its lamps lit."

const embeddingsPath = "/openai/v1/embeddings"

// embeddingBody is a request for embeddings of texts; more are further members.
func embeddingBody(t *testing.T, model, more string, texts ...string) string {
	t.Helper()
	input, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"model":%q,"input":%s%s}`, model, input, more)
}

// An embeddingAnswer is what a client reads.
type embeddingAnswer struct {
	Data []struct {
		Index     int
		Embedding json.RawMessage
	}
	Model string
	Usage map[string]int64
	SVC   calltest.Bill
}

func readEmbeddings(t *testing.T, a answer) (e embeddingAnswer) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), &e); err != nil || a.status != 200 {
		t.Fatalf("%v in %d %.300s", err, a.status, a.body)
	}
	return e
}

// vector reads the n-th vector, in either encoding. It must have the length 1.
func (e *embeddingAnswer) vector(t *testing.T, n int) (v []float32) {
	t.Helper()
	raw := e.Data[n].Embedding
	var text string
	if json.Unmarshal(raw, &text) == nil {
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(data); i += 4 {
			v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(data[i:])))
		}
	} else if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if e.Data[n].Index != n || math.Abs(sum-1) > 1e-5 {
		t.Errorf("item %d has the index %d and a vector whose squares add up to %f", n, e.Data[n].Index, sum)
	}
	return v
}

// TestEmbeddings makes embeddings at the emulated providers, on each engine: held before, charged to the micro-cent
// after, one row for each key, and the same bytes again for a repeated one. The margin is 20 % and the fee 5 %.
func TestEmbeddings(t *testing.T) {
	t.Parallel()
	eachEmulated(t, func(t *testing.T, n *emulated) {
		embed := func(body string, headers ...string) answer {
			t.Helper()
			return whole(t, n.Call("POST", embeddingsPath, body, headers...))
		}
		rows := func(key string) []calltest.Bill { t.Helper(); return calltest.Spends(t, n.DB)[key] }

		// 7 tokens at 2 mc: 14, margin 2.8 → 3, fee 0.7 → 1. Held for 7 × 1.25 → 9 tokens: (18 + 4 + 1) × 1.05 → 25.
		key := servertest.UUID()
		body := embeddingBody(t, "text-embedding-3-small", "", harbour)
		first := embed(body, "Idempotency-Key: "+key)
		e := readEmbeddings(t, first)
		want := calltest.Bill{
			HoldMC:      25,
			CostMC:      14,
			FeeMC:       1,
			MarginMC:    3,
			ChargeMC:    18,
			RemainingMC: e.SVC.RemainingMC,
			Settlement:  "settled",
		}
		if e.SVC != want || e.Usage["prompt_tokens"] != 7 || e.Usage["total_tokens"] != 7 || len(e.Usage) != 2 ||
			e.Model != "text-embedding-3-small" || len(e.vector(t, 0)) != 1536 {
			t.Errorf("%+v", e)
		}
		if list := rows(key); len(list) != 1 || list[0] != want {
			t.Errorf("rows %+v", list)
		}
		again := embed(body, "Idempotency-Key: "+key)
		if again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" || len(rows(key)) != 1 ||
			len(n.tries(first.header.Get("X-Request-Id"))) != 1 {
			t.Errorf("replayed: %.300s", again.body)
		}
		other := embeddingBody(t, "text-embedding-3-small", "", harbour, "more")
		embed(other, "Idempotency-Key: "+key).wantAnswer(t, 409, "idempotency_key_reused")
		receipt := whole(t, n.Call("GET", "/v1/requests/"+first.header.Get("X-Request-Id"), ""))
		if receipt.status != 200 || !strings.Contains(receipt.body, `"class":"input","tokens":7,`) ||
			!strings.Contains(receipt.body, `"max_tokens_applied":null`) {
			t.Errorf("receipt %+v", receipt)
		}

		// Both encodings have the same numbers; fewer of them are asked for, and the order is that of the inputs.
		coded := readEmbeddings(t,
			embed(embeddingBody(t, "text-embedding-3-small", `,"encoding_format":"base64"`, harbour)))
		if fmt.Sprint(coded.vector(t, 0)) != fmt.Sprint(e.vector(t, 0)) {
			t.Error("base64 and decimals differ")
		}
		few := readEmbeddings(t,
			embed(embeddingBody(t, "text-embedding-3-large", `,"dimensions":256`, "好", harbour, "好")))
		if len(few.Data) != 3 || len(few.vector(t, 1)) != 256 ||
			fmt.Sprint(few.vector(t, 0)) != fmt.Sprint(few.vector(t, 2)) {
			t.Errorf("%d vectors", len(few.Data))
		}

		// Token ids are counted exactly, in spite of the calibration. 3 tokens at 2 mc: 6, margin 1.2 → 1, fee 0.3 → 1;
		// held for 8 × 1.05 → 9.
		ids := readEmbeddings(t, embed(`{"model":"text-embedding-3-small","input":[[1,2],[3]],"user":"u"}`))
		if s := ids.SVC; s.HoldMC != 9 || s.CostMC != 6 || s.ChargeMC != 8 || ids.Usage["prompt_tokens"] != 3 {
			t.Errorf("token ids: %+v", ids)
		}

		n.checkGoogle(embed)
		n.checkRefusedEmbeddings(embed)
		n.checkFailedEmbeddings(embed)
		n.checkRetriedEmbeddings(body)
	})
}

// checkGoogle makes embeddings at Google, which reports no usage: 7 tokens at 15 mc by our count, rounded down.
func (n *emulated) checkGoogle(embed func(body string, headers ...string) answer) {
	n.t.Helper()
	t := n.t
	e := readEmbeddings(t, embed(embeddingBody(t, "gemini-embedding-001", `,"dimensions":768`, harbour)))
	// 105 + 21 + 5.25 → 131; held for (105 + 21 + 6) × 1.05 → 139
	if s := e.SVC; s.HoldMC != 139 || s.CostMC != 105 || s.MarginMC != 21 || s.FeeMC != 5 || s.ChargeMC != 131 ||
		s.Settlement != "estimated" || e.Usage["prompt_tokens"] != 7 || len(e.Usage) != 2 ||
		len(e.vector(t, 0)) != 768 || e.Model != "gemini-embedding-001" {
		t.Errorf("google: %+v", e)
	}
	told := readEmbeddings(t, embed(embeddingBody(t, "gemini-embedding-001", "", "!emu usage=7,0,0,0")))
	if s := told.SVC; s.ChargeMC != 132 || s.Settlement != "settled" || len(told.vector(t, 0)) != 3072 {
		t.Errorf("google with usage: %+v", told)
	}
	for _, words := range []string{"!emu no_usage", `!emu usage_raw={"prompt_tokens":9000,"total_tokens":9000}`} {
		e := readEmbeddings(t, embed(embeddingBody(t, "text-embedding-3-small", "", words)))
		if s := e.SVC; s.Settlement != "estimated" || s.ChargeMC == 0 || s.ChargeMC > s.HoldMC {
			t.Errorf("%s: %+v", words, e.SVC)
		}
	}
}

// checkRefusedEmbeddings sends what is refused before the hold.
func (n *emulated) checkRefusedEmbeddings(embed func(body string, headers ...string) answer) {
	n.t.Helper()
	t := n.t
	before := len(calltest.Spends(t, n.DB))
	n.forget()
	for body, says := range map[string]string{
		embeddingBody(t, "gpt-6-luna", "",
			"a"): "makes no embeddings",
		embeddingBody(t, "text-embedding-3-small", `,"dimensions":1537`,
			"a"): "dimensions: ",
		embeddingBody(t, "gemini-embedding-001", "",
			make([]string, 3)...): "input[0]: ",
		embeddingBody(t, "gemini-embedding-001", "", strings.Split(strings.Repeat("a ", 101)+"a", " ")...): "input: ",
		embeddingBody(t, "gemini-embedding-001", "",
			strings.Repeat("harbour ", 2500)): "input: has",
		`{"model":"gemini-embedding-001","input":[1,2]}`: "reads text",
		`{"input":"a"}`: "model: ",
	} {
		if a := embed(body); a.status != 400 || !strings.Contains(a.body, says) {
			t.Errorf("%.100s: %d %.300s", body, a.status, a.body)
		}
	}
	chat := `{"model":"text-embedding-3-small","messages":[{"role":"user","content":"Hi"}]}`
	if a := whole(t, n.Call("POST", "/v1/chat/completions", chat)); a.status != 400 ||
		!strings.Contains(a.body, "makes embeddings only") {
		t.Errorf("chat: %+v", a)
	}
	if after := len(calltest.Spends(t, n.DB)); after != before || len(n.tries("")) != 0 {
		t.Errorf("refused calls made %d rows and %d requests", after-before, len(n.tries("")))
	}
}

// checkFailedEmbeddings: what fails at the provider is not billed, and its key may be tried again.
func (n *emulated) checkFailedEmbeddings(embed func(body string, headers ...string) answer) {
	n.t.Helper()
	t := n.t
	before := len(calltest.Spends(t, n.DB))
	for words, status := range map[string]int{
		"!emu status=400":         400,
		"!emu status=503":         502,
		"!emu cut=1000":           502,
		"!emu garbage":            502,
		"!emu status=429 daily":   502,
		"!emu code=x error=0":     502,
		"!emu html status=200":    502,
		"!emu status=401":         502,
		"!emu should_retry=false": 200,
	} {
		for _, model := range []string{"text-embedding-3-small", "gemini-embedding-001"} {
			if a := embed(embeddingBody(t, model, "", words)); a.status != status {
				t.Errorf("%s, %s: %d %.300s", model, words, a.status, a.body)
			}
		}
	}
	if after := len(calltest.Spends(t, n.DB)); after != before+2 {
		t.Errorf("failed calls made %d rows", after-before-2)
	}
	key := "Idempotency-Key: " + servertest.UUID()
	body := embeddingBody(t, "text-embedding-3-small", "", "!emu status=500 should_retry=false fails=1")
	if a := embed(body, key); a.status != 502 {
		t.Errorf("%d %.300s", a.status, a.body)
	}
	if a := embed(body, key); a.status != 200 || a.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("tried again: %d %.300s", a.status, a.body)
	}
}

// checkRetriedEmbeddings: a client that disconnects is charged once, callers with one key get one call, and a retry of
// an SDK without a key finds the call before it.
func (n *emulated) checkRetriedEmbeddings(body string) {
	n.t.Helper()
	t := n.t
	send := func(ctx context.Context, body string, header http.Header) (answer, error) {
		req, err := http.NewRequestWithContext(ctx, "POST", n.BaseURL+embeddingsPath, strings.NewReader(body))
		if err != nil {
			return answer{}, err
		}
		req.Header = header
		req.Header.Set("Authorization", "Bearer "+n.Connection.AccessToken)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return answer{}, err
		}
		return whole(t, resp), nil
	}
	key := servertest.UUID()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	slow := embeddingBody(t, "text-embedding-3-small", "", harbour, "!emu delay=1s")
	if _, err := send(ctx, slow, http.Header{"Idempotency-Key": {key}}); err == nil {
		t.Error("the client did not disconnect")
	}
	testkit.Eventually(t, testkit.Patience, "the row of the call", func() bool {
		return len(calltest.Spends(t, n.DB)[key]) == 1
	})

	key = servertest.UUID()
	var group sync.WaitGroup
	answers := make([]answer, 8)
	for i := range answers {
		group.Go(func() {
			var err error
			if answers[i], err = send(t.Context(), slow, http.Header{"Idempotency-Key": {key}}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, a := range answers {
		if a.status != 200 || a.body != answers[0].body {
			t.Errorf("%d %.300s", a.status, a.body)
		}
	}
	if list := calltest.Spends(t, n.DB)[key]; len(list) != 1 {
		t.Errorf("%d rows", len(list))
	}

	before := len(calltest.Spends(t, n.DB))
	lost, err := send(t.Context(), body, http.Header{"X-Stainless-Retry-Count": {"0"}})
	if err != nil {
		t.Fatal(err)
	}
	retry, err := send(t.Context(), body, http.Header{"X-Stainless-Retry-Count": {"1"}})
	if err != nil || retry.body != lost.body || retry.header.Get("Idempotent-Replayed") != "true" ||
		len(calltest.Spends(t, n.DB)) != before+1 {
		t.Errorf("a retry of an SDK: %v, %+v", err, retry)
	}
}

// TestMockEmbeddings: in mock mode an embedding costs what was held for, without the 5 %, and is the same each time.
func TestMockEmbeddings(t *testing.T) {
	t.Parallel()
	p := apptest.Start(t, apptest.URL(t, db.SQLite))
	body := embeddingBody(t, "text-embedding-3-large", `,"dimensions":16`, harbour, "two")
	one := readEmbeddings(t, whole(t, p.Call("POST", embeddingsPath, body)))
	two := readEmbeddings(t, whole(t, p.Call("POST", embeddingsPath, body)))
	// 8 × 1.25 = 10 tokens at 13 mc: 130, margin 26, fee 6.5 → 7; held for 163 × 1.05 → 172
	if s := one.SVC; s.HoldMC != 172 || s.CostMC != 130 || s.ChargeMC != 163 || s.Settlement != "settled" {
		t.Errorf("%+v", one.SVC)
	}
	if fmt.Sprint(one.vector(t, 0)) != fmt.Sprint(two.vector(t, 0)) || len(one.vector(t, 1)) != 16 {
		t.Error("the vectors do not follow from their texts")
	}
	google := embeddingBody(t, "gemini-embedding-001", "", harbour)
	if s := readEmbeddings(t, whole(t, p.Call("POST", embeddingsPath, google))).SVC; s.ChargeMC != 132 {
		t.Errorf("google: %+v", s)
	}
	whole(t, p.Call("POST", embeddingsPath, `{"model":"gemini-embedding-001","input":[7]}`)).wantAnswer(t, 400,
		"invalid_request")
	whole(t, p.Call("POST", embeddingsPath, embeddingBody(t, "text-embedding-3-small", "", "!mock status=500"))).
		wantAnswer(t, 502, "provider_error")
	p.Verify()
}
