package emulator

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/purserhq/purser/emulator/exchange"
)

var paths = []string{chatPath, claudePath, googlePath, responsesPath}

// streaming is a request for a stream.
func streaming(path, text string) (string, string) {
	if path == googlePath {
		return strings.Replace(path, ":g", ":streamG", 1) + "?alt=sse", promptBodies(path, text, "")
	}
	return path, promptBodies(path, text, `"stream":true,`)
}

func TestFailsTheFirstTries(t *testing.T) {
	t.Parallel()
	for _, path := range paths {
		s := startEmulator(t)
		for try, want := range []int{503, 503, 200} {
			resp, body, err := postBody(t, s, path,
				promptBodies(path, "Hi\n!emu status=503 fails=2 retry_after=2.5", ""))
			if err != nil || resp.StatusCode != want {
				t.Fatalf("%s, try %d: %v %s", path, try, err, body)
			}
			if want == 503 && resp.Header.Get("Retry-After") != "2.5" {
				t.Errorf("%s: %v", path, resp.Header)
			}
		}
	}
}

func TestRefusesUnknownWords(t *testing.T) {
	t.Parallel()
	for _, path := range paths {
		resp, body, err := postBody(t, startEmulator(t), path, promptBodies(path, "!emu statsu=500", ""))
		if err != nil || resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "statsu") {
			t.Errorf("%s: %v %s", path, err, body)
		}
	}
}

func TestSaysWhenToTryAgain(t *testing.T) {
	t.Parallel()
	resp, _, err := postBody(t, startEmulator(t), chatPath,
		promptBodies(chatPath, "!emu status=429 retry_after_date=2", ""))
	if err != nil {
		t.Fatal(err)
	}
	if at, err := http.ParseTime(resp.Header.Get("Retry-After")); err != nil || time.Until(at) > 3*time.Second {
		t.Errorf("%v %v", resp.Header, err)
	}
	_, body, _ := postBody(t, startEmulator(t), googlePath,
		promptBodies(googlePath, "!emu status=429 retry_after=34 daily", ""))
	if !strings.Contains(body, `"retryDelay":"34s"`) || !strings.Contains(body, "PerDay") {
		t.Error(body)
	}
}

func TestCutsAfterBytes(t *testing.T) {
	t.Parallel()
	for _, path := range paths {
		s := startEmulator(t)
		to, ask := streaming(path, "Hi\n!emu cut=300")
		if _, body, err := postBody(t, s, to, ask); !errors.Is(err, syscall.ECONNRESET) || len(body) != 300 {
			t.Errorf("%s streamed: %d bytes, %v", path, len(body), err)
		}
		if _, body, err := postBody(t, s, path, promptBodies(path, "Hi\n!emu cut=100", "")); err == nil ||
			len(body) != 100 {
			t.Errorf("%s: %d bytes, %v", path, len(body), err)
		}
		if _, _, err := postBody(t, s, path, promptBodies(path, "Hi\n!emu cut=0", "")); err == nil {
			t.Errorf("%s: answered although cut before the first byte", path)
		}
	}
}

func TestBreaksStreams(t *testing.T) {
	t.Parallel()
	finished := map[string]string{
		chatPath:      "[DONE]",
		claudePath:    "message_stop",
		googlePath:    `"finishReason"`,
		responsesPath: "response.completed",
	}
	for _, path := range paths {
		s := startEmulator(t)
		for words, want := range map[string]string{"end=3": "", "error=3": `"error"`, "error=0": `"error"`} {
			to, ask := streaming(path, "Hello\n!emu "+words)
			_, body, err := postBody(t, s, to, ask)
			if err != nil || strings.Contains(body, finished[path]) || !strings.Contains(body, want) {
				t.Errorf("%s %s: %v %s", path, words, err, body)
			}
		}
	}
}

func TestSplitAndHugeSayTheSame(t *testing.T) {
	t.Parallel()
	for _, path := range paths {
		s := startEmulator(t)
		to, ask := streaming(path, "Hello\n!emu words=5 split")
		if _, body, err := postBody(t, s, to, ask); err != nil || !strings.Contains(body, "said:") {
			t.Errorf("%s: %v %s", path, err, body)
		}
		to, ask = streaming(path, "Hello\n!emu huge")
		_, body, err := postBody(t, s, to, ask)
		longest := 0
		for line := range strings.Lines(body) {
			longest = max(longest, len(line))
		}
		if err != nil || longest < 1<<20 {
			t.Errorf("%s: longest line %d, %v", path, longest, err)
		}
	}
}

func TestStreamsUseWhatWholeAnswersUse(t *testing.T) {
	t.Parallel()
	counts := func(body string) (list []string) { // the last of each
		for _, name := range []string{"prompt_tokens", "completion_tokens", "input_tokens", "output_tokens",
			"promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "cached_tokens",
			"cache_read_input_tokens"} {
			if i := strings.LastIndex(body, `"`+name+`":`); i >= 0 {
				value, _, _ := strings.Cut(body[i:], ",")
				list = append(list, strings.TrimRight(value, "}\r\n"))
			}
		}
		return list
	}
	for _, path := range paths {
		s := startEmulator(t)
		for _, text := range []string{"Hello", "!emu words=300", "!emu words=3000", "!emu usage=1000,200,100,50",
			"!emu reasoning_only"} {
			more := map[string]string{
				responsesPath: `"max_output_tokens":700,`,
				chatPath:      `"max_completion_tokens":700,`,
				googlePath:    `"generationConfig":{"maxOutputTokens":700},`,
			}[path]
			_, whole, _ := postBody(t, s, path, promptBodies(path, text, more))
			to, stream := path, promptBodies(path, text, more+`"stream":true,`)
			if path == chatPath {
				stream = promptBodies(path, text, more+`"stream":true,"stream_options":{"include_usage":true},`)
			} else if path == googlePath {
				to, _ = streaming(path, "")
				stream = promptBodies(path, text, more)
			}
			_, streamed, _ := postBody(t, s, to, stream)
			a, b := strings.Join(counts(whole), " "), strings.Join(counts(streamed), " ")
			if a != b || a == "" {
				t.Errorf("%s %q: whole %s, streamed %s", path, text, a, b)
			}
		}
	}
}

func TestUsageFollowsEachConvention(t *testing.T) {
	t.Parallel()
	for path, wants := range map[string][]string{
		chatPath: {`"prompt_tokens":1000,"completion_tokens":50`, `"cached_tokens":200`, `"cache_write_tokens":100`,
			`"reasoning_tokens":10`},
		claudePath: {`"input_tokens":700`, `"cache_read_input_tokens":200`, `"cache_creation_input_tokens":100`,
			`"output_tokens":50`},
		googlePath: {`"promptTokenCount":1000`, `"cachedContentTokenCount":200`, `"candidatesTokenCount":40`,
			`"thoughtsTokenCount":10`, `"totalTokenCount":1050`},
	} {
		_, body, _ := postBody(t, startEmulator(t), path, promptBodies(path, "!emu usage=1000,200,100,50,10", ""))
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s: no %s in %s", path, want, body)
			}
		}
	}
}

func TestShowsRequestsWithoutKeys(t *testing.T) {
	t.Parallel()
	s := startEmulator(t)
	for _, path := range paths {
		if _, _, err := postBody(t, s, path, promptBodies(path, "Hi", "")); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := http.Get(s.URL + "/emulator/requests")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Data []exchange.Record }
	if err := json.Unmarshal(body, &list, json.MatchCaseInsensitiveNames(true)); err != nil ||
		len(list.Data) != len(paths) {
		t.Fatalf("%v %s", err, body)
	}
	for i, r := range list.Data {
		if r.Path != paths[i] || string(r.Body) != promptBodies(paths[i], "Hi", "") || r.Status != 200 ||
			r.End != "whole" {
			t.Errorf("%+v", r)
		}
	}
	if strings.Contains(string(body), "Bearer") || strings.Contains(strings.ToLower(string(body)), "api-key") {
		t.Errorf("keys are shown: %s", body)
	}
}
