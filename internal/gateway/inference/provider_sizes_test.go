package inference

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/testkit"
)

// This file plays answers around the bounds of bytes.

// A bigAnswer is an answer of so many bytes.
type bigAnswer struct {
	name  string
	bytes int
	form  string // of what has so many bytes: stream, event or body
	over  bool   // a node takes it for cut, because it is over a bound
}

const (
	maxEventBytes  = 16 << 20 // of the adapters
	maxAnswerBytes = 32 << 20
)

var bigAnswers = []*bigAnswer{
	{name: "below 8 MiB", bytes: maxStoredResponse - 256<<10, form: "stream"},
	{name: "above 8 MiB", bytes: maxStoredResponse + 256<<10, form: "stream"},
	{name: "below 16 MiB", bytes: maxEventBytes - 4<<10, form: "event"},
	{name: "above 16 MiB", bytes: maxEventBytes + 1, form: "event", over: true},
	{name: "below 32 MiB", bytes: maxAnswerBytes - 4<<10, form: "body"},
	{name: "above 32 MiB", bytes: maxAnswerBytes + 1, form: "body", over: true},
}

// maxBigTokens is the output cap of a call with a big answer.
const maxBigTokens = 60_000

// isTooLong reports whether a whole body is over the bound.
func (b *bigAnswer) isTooLong() bool { return b != nil && b.form == "body" && b.over }

// write returns the answer: a few pieces of text, of which the second is big, or many. OpenAI's chunks have padding, so
// that what is counted of a long stream is below the output cap.
func (b *bigAnswer) write(c *cell, u *provider.Usage) *answer {
	pieces := []piece{{textPiece, "Hello"}}
	if b.form != "stream" {
		pieces = append(pieces, piece{textPiece, strings.Repeat(" word", b.bytes/5)})
	} else {
		const parts = 400
		text := strings.Repeat(" word", 100)
		if c.dialect.name != "chat" {
			text = strings.Repeat(" word", b.bytes/parts/5)
		}
		for range parts {
			pieces = append(pieces, piece{textPiece, text})
		}
	}
	pieces = append(pieces, piece{textPiece, "."})
	a := c.dialect.write(c.dialect, pieces, false, c.usage, u)
	if b.form == "stream" && c.dialect.name == "chat" {
		padding := `"model":"m","obfuscation":"` + strings.Repeat("x", b.bytes/400-800) + `"`
		for i := range a.events {
			a.events[i] = strings.Replace(a.events[i], `"model":"m"`, padding, 1)
		}
	}
	if b.over && (b.form == "event" || a.body == "") { // nothing is delivered from the big event on
		a.endedAt = len(a.events) + 1
		for i, n := range a.lengths {
			if n > b.bytes/2 {
				a.lengths[i] = len("Hello")
			}
		}
	}
	return a
}

// isAbout compares a number of tokens with what the node has counted. It counts long texts in parts, each of which may
// be one token off, and a crash may lose the last two parts.
func (c *cell) isAbout(got, want int64) bool {
	if c.big == nil {
		return got == want
	}
	want = min(want, maxBigTokens)
	slack := int64(2 + c.big.bytes>>12)
	if c.way == crash {
		slack += 2000
	}
	return max(got-want, want-got) <= slack
}

// setPlace sets where a big answer ends.
func (c *cell) setPlace() {
	a := c.write("", 0)
	switch {
	case c.isBody(a):
		c.at = 2
	case c.way == ending:
		c.at = len(a.events)
	case c.way == left:
		c.at = len(a.events) / 2
	default:
		c.at = min(a.endedAt-1, len(a.events))
	}
}

// listBigCells returns the cells of big answers, without their places.
func listBigCells() (cells []cell) {
	add := func(c cell) { cells = append(cells, c) }
	for _, b := range bigAnswers {
		for _, d := range dialects {
			for _, usage := range []string{lateUsage, noUsage} {
				c := cell{dialect: d, content: "text", usage: usage, route: "ai", streamed: true, big: b}
				switch b.form {
				case "stream":
					for _, c.way = range []way{ending, cuts, stopped, left, orphaned, crash} {
						add(c)
					}
					for _, c.route = range routes[1:] {
						if d.name == "chat" && c.route == "responses" {
							continue // the Responses API serves it, as in listCells
						}
						c.way = cuts
						add(c)
					}
				case "event":
					if d.name == "responses" {
						continue // its bound is that of a body
					}
					add(c)
				case "body":
					if c.streamed = d.name == "responses"; d.name != "anthropic" { // its events are bounded
						add(c)
					}
				}
			}
		}
	}
	return cells
}

// TestBigAnswers plays answers of a size around each bound, as TestProviders does. Usually it plays a few of them.
func TestBigAnswers(t *testing.T) {
	t.Parallel()
	cells := listBigCells()
	all, seed := len(cells), *matrixSeed
	if !*wholeMatrix && *matrixCell == "" {
		n := 4
		if testkit.IsLong() {
			seed, n = rand.Uint64(), 20
		}
		r := rand.New(rand.NewPCG(seed, 1))
		r.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
		cells = cells[:n]
	}
	for i := range cells {
		cells[i].setPlace()
	}
	t.Logf("%d of %d cells, seed %d", len(cells), all, seed)
	m := newMatrix(t, db.SQLite)
	m.do(rules.TopUp{AccountID: m.who.AccountID, AmountMC: 1000 * money.Dollar}) // a call is held for up to $1
	m.do(rules.ChangeCap{ConnectionID: m.who.ConnectionID, TargetMC: 1000 * money.Dollar})
	for i := range cells {
		if c := &cells[i]; *matrixCell == "" || c.String() == *matrixCell {
			t.Log(c)
			m.play(c)
		}
	}
	m.audit()
}
