package inference

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
)

// This file plays answers that repeat the prompt, the answer and our keys where no text of theirs belongs.

// An encoding is a way to write a text.
type encoding struct {
	name  string
	write func(s string) []string // all that it may look like within a longer text
}

var encodings = []encoding{
	{"plain", func(s string) []string { return []string{s} }},
	{"hex", func(s string) []string { return []string{hex.EncodeToString([]byte(s))} }},
	{"base64", func(s string) (list []string) {
		for skip := range 3 {
			list = append(list, base64.RawStdEncoding.EncodeToString([]byte(s[skip:])[:(len(s)-skip)/3*3]))
		}
		return list
	}},
	{"percent", func(s string) []string { return []string{eachByte(s, "%%%02x")} }},
	{"JSON", func(s string) []string { return []string{eachByte(s, `\u%04x`)} }},
}

func eachByte(s, format string) (out string) {
	for _, b := range []byte(s) {
		out += fmt.Sprintf(format, b)
	}
	return out
}

// encodeAll returns texts in each encoding, on one line.
func encodeAll(texts []string) (all string) {
	for _, text := range texts {
		for _, e := range encodings {
			all += " " + e.write(text)[0]
		}
	}
	return all
}

// findSecret returns which of the texts another text has, in which encoding; "" = none.
func findSecret(text string, secrets []string) string {
	text = strings.ToLower(strings.ReplaceAll(text, `\\`, `\`))
	for _, s := range secrets {
		for _, e := range encodings {
			for _, form := range e.write(s) {
				if strings.Contains(text, strings.ToLower(form)) {
					return s + " in " + e.name
				}
			}
		}
	}
	return ""
}

// A faultyAnswer is an answer that repeats what it was asked, of which echo is a part.
type faultyAnswer struct {
	name string
	raw  func(d *dialect, echo string) string
	key  bool // it is of the key that was used: other calls go by the other key meanwhile
	rate bool // it is of the model: calls of other models are not concerned
}

func httpAnswer(status, kind, body string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, kind, len(body), body)
}

// errorObject is the error of each dialect.
func errorObject(echo string) string {
	return `{"type":"error","error":{"message":` + quote("It was refused: "+echo) + `,"type":"invalid_request_error",` +
		`"code":` + quote(echo) + `,"status":` + quote(echo) + `,"param":` + quote(echo) + `}}`
}

func eventsAnswer(events ...string) string {
	body := ""
	for _, e := range events {
		body += httpChunk(e)
	}
	return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n" +
		"Connection: close\r\n\r\n" + body + "0\r\n\r\n"
}

// begun returns the first events of an answer, with a word of it.
func begun(d *dialect, echo string) []string {
	u := trueUsage
	a := d.write(d, []piece{{textPiece, "Hello " + echo}, {textPiece, "."}}, false, lateUsage, &u)
	for n := range a.events {
		if a.said(n) != "" {
			return a.events[:n]
		}
	}
	return nil
}

// faultyAnswers are statuses, and answers that are broken in some way.
func faultyAnswers() (list []faultyAnswer) {
	for status, kind := range map[int]faultyAnswer{
		400: {}, 401: {key: true}, 402: {key: true}, 403: {rate: true}, 404: {}, 413: {}, 422: {}, 429: {rate: true},
		500: {}, 503: {},
	} {
		kind.name = fmt.Sprint("status ", status)
		kind.raw = func(_ *dialect, echo string) string {
			return httpAnswer(fmt.Sprintf("%d %s", status, echo), "application/json", errorObject(echo))
		}
		list = append(list, kind)
	}
	texts := map[string]func(d *dialect, echo string) string{
		"400 in words": func(_ *dialect, echo string) string { return httpAnswer("400 x", "text/plain", echo) },
		"a page":       func(_ *dialect, echo string) string { return httpAnswer("200 OK", "text/html", "<p>"+echo) },
		"garbage": func(_ *dialect, echo string) string {
			return httpAnswer("200 OK", "application/json", "{"+echo)
		},
		"an error with status 200": func(_ *dialect, echo string) string {
			return httpAnswer("200 OK", "application/json", errorObject(echo))
		},
		"a redirect": func(_ *dialect, echo string) string {
			return "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/?" + strings.ReplaceAll(echo, " ", "+") +
				"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
		},
		"an encoding": func(_ *dialect, echo string) string {
			return "HTTP/1.1 200 OK\r\nContent-Encoding: " + echo + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
		},
		"a long status line": func(_ *dialect, echo string) string {
			return "HTTP/1.1 5x0 " + strings.Repeat(echo, 60) + "\r\n\r\n"
		},
		"no HTTP":      func(_ *dialect, echo string) string { return echo + "\r\n" + echo + "\r\n\r\n" },
		"a bad header": func(_ *dialect, echo string) string { return "HTTP/1.1 200 OK\r\n" + echo + "\r\n\r\n" },
		"a bad length": func(_ *dialect, echo string) string {
			return "HTTP/1.1 200 OK\r\nContent-Length: " + echo + "\r\n\r\n" + echo
		},
		"a bad chunk": func(_ *dialect, echo string) string {
			return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + echo +
				"\r\n"
		},
		"an event of words": func(_ *dialect, echo string) string { return eventsAnswer("data: " + echo + "\n\n") },
		"an error event": func(_ *dialect, echo string) string {
			return eventsAnswer("event: error\ndata: " + errorObject(echo) + "\n\n")
		},
		"words within": func(d *dialect, echo string) string {
			return eventsAnswer(append(begun(d, echo), "data: "+echo+"\n\n")...)
		},
		"an error within": func(d *dialect, echo string) string {
			return eventsAnswer(append(begun(d, echo), "event: error\ndata: "+errorObject(echo)+"\n\n")...)
		},
		"a broken event within": func(d *dialect, echo string) string {
			return eventsAnswer(append(begun(d, echo), `data: {"type":`+quote(echo)+`,"choices":`+quote(echo)+
				`,"candidates":`+quote(echo)+`,"item":`+quote(echo)+"}\n\n")...)
		},
		"words as names": func(d *dialect, echo string) string {
			u := trueUsage
			a := d.write(d, []piece{{textPiece, "Hello"}}, false, lateUsage, &u)
			text := strings.Join(a.events, "")
			for _, name := range []string{"m", "chatcmpl-9", "resp_1", "msg_01", "r1", "stop", "end_turn", "STOP"} {
				text = strings.ReplaceAll(text, quote(name), quote(echo))
			}
			return eventsAnswer(text)
		},
		"words as usage": func(d *dialect, echo string) string {
			u := trueUsage
			a := d.write(d, []piece{{textPiece, "Hello"}}, false, lateUsage, &u)
			return eventsAnswer(strings.ReplaceAll(strings.Join(a.events, ""), "40", quote(echo)))
		},
	}
	for name, raw := range texts {
		list = append(list, faultyAnswer{name: name, raw: raw})
	}
	return list
}

// otherModels are models of the providers of dialects that no cell calls.
var otherModels = map[string]string{
	"chat":      "gpt-4.1-mini",
	"responses": "gpt-4.1-mini",
	"anthropic": "claude-opus-5-5",
	"google":    "gemini-2.5-flash-lite",
}

// TestFaultyAnswers plays answers that are refusals, or broken, and that repeat the prompt, the answer and our keys in
// each encoding: nothing of it is logged, and no key reaches the client. Other users are served as before, each key in
// its turn, but for the key or the model that was refused.
func TestFaultyAnswers(t *testing.T) {
	t.Parallel()
	for i, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			m := newMatrix(t, db.SQLite)
			r := rand.New(rand.NewPCG(*matrixSeed, uint64(2+i)))
			for _, f := range faultyAnswers() {
				forms := []bool{true, false}
				if !*wholeMatrix {
					forms = forms[r.IntN(2):][:1]
				}
				for _, streamed := range forms {
					c := &cell{dialect: d, content: "text", route: routes[r.IntN(len(routes))], streamed: streamed}
					m.playFault(c, &f)
				}
				if f.key || f.rate {
					m.pass(maxKeyRest) // the key serves again
					m.issueTokens()
				}
			}
			m.audit()
		})
	}
}

// maxKeyRest is longer than a key rests for one refusal.
const maxKeyRest = 11 * time.Minute

// playFault plays a faulty answer and checks what became of it.
func (m *matrix) playFault(c *cell, f *faultyAnswer) {
	m.t.Helper()
	m.played++
	name := fmt.Sprintf("%s/%s/%s/streamed %t", c.dialect.name, f.name, c.route, c.streamed)
	secrets := append([]string{fmt.Sprintf("SecretPrompt%04dQ", m.played), fmt.Sprintf("SecretAnswer%04dQ", m.played)},
		m.keys...)
	mark := fmt.Sprintf("PLAY-%d", m.played)
	m.stub.put(mark, &play{raw: func(key string) string {
		return f.raw(c.dialect, encodeAll([]string{key, secrets[0], secrets[1]}))
	}})
	key := id.NewUUID()
	request := m.request(m.tries, m.token, key, c.route, c.dialect.model, mark+" "+secrets[0], c.streamed,
		c.dialect.name != "chat", 4000)
	got := readCall(m.t.Context(), request)
	m.await(name+" ends", func() bool {
		return got.hasEnded() && len(m.tries.calls.listCalls()) == 0 && m.hasNoHolds()
	})
	answer, log := got.raw.String(), m.log.take()
	if secret := findSecret(log, secrets); secret != "" || len(log) > maxLoggedBytes {
		m.t.Errorf("%s: %d bytes of log have %q\n%.3000s", name, len(log), secret, log)
	}
	if secret := findSecret(answer, m.keys); secret != "" && got.status != http.StatusOK {
		m.t.Errorf("%s: the client got %q in\n%.3000s", name, secret, answer)
	}
	p := &playedCell{cell: c, m: m, node: m.tries, key: key, got: got}
	said := got.message(c.route)
	row := p.charge()
	isRight := row == nil && said.said == "" || row != nil && got.status == http.StatusOK && row.charged <= row.held
	if row != nil && row.settlement == "estimated" && c.streamed {
		isRight = isRight && row.output == tokensOf(said.said)
	}
	if !isRight {
		m.t.Errorf("%s: the row is %+v, the client got %d %s", name, row, got.status, answer)
	}
	model := c.dialect.model
	if f.rate {
		model = otherModels[c.dialect.name]
	}
	if f.key {
		m.checkServed(name, model)
		return
	}
	m.checkOthers(m.tries, name, model)
}

// checkServed checks that a call of another user of the app succeeds, by whatever key.
func (m *matrix) checkServed(after, model string) {
	m.t.Helper()
	got := readCall(m.t.Context(), m.request(m.tries, m.other, id.NewUUID(), "ai", model, "Hello", true, false, 400))
	if <-got.ended; got.status != http.StatusOK {
		m.t.Errorf("after %s: another user got %d %s", after, got.status, got.raw.String())
	}
	m.log.take()
}
