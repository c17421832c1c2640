// Package shapetest has shapes write the answers that tests note in the shape of Chat Completions, with their bill.
package shapetest

import (
	"bytes"
	"strings"

	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/conversation/completions"
	"github.com/purserhq/purser/internal/models/provider"
)

// A bill has the members of an answer that its ledger row gives, as raw JSON; nil = absent.
type bill struct{ usage, svc, final, failure []byte }

func (b *bill) read(object []byte) {
	provider.Members(object, func(name, value []byte) bool {
		switch string(name) {
		case "usage":
			if string(value) != "null" {
				b.usage = value
			}
		case "svc":
			b.svc = value
		case "svc_final":
			b.final = value
			provider.Members(value, func(name, value []byte) bool {
				switch {
				case string(value) == "null":
				case string(name) == "usage":
					b.usage = value
				case string(name) == "svc":
					b.svc = value
				case string(name) == "settlement" && b.svc == nil:
					b.svc = append(append([]byte(`{"settlement":`), value...), '}')
				}
				return true
			})
		case "error":
			b.failure = value
		}
		return true
	})
}

func (b *bill) fill(f shapes.Format, answer []byte) []byte {
	return shapes.FillHoles(answer, func(out []byte, hole string) []byte {
		name, value := `,"svc_final":`, b.final
		switch hole {
		case shapes.UsageHole:
			return f.AppendUsage(out, b.usage)
		case shapes.BlockHole:
			name, value = `,"svc":`, b.svc
		}
		if value == nil {
			return out
		}
		return append(append(out, name...), value...)
	})
}

// Stream returns what the client of a call gets for a stream of chunks, which are given so many events at a time.
func Stream(c shapes.Call, chunks string, events int) []byte {
	sent, end, b := write(c, chunks, events)
	return append(sent, b.fill(c.Format(), end)...)
}

// Stored returns what is stored of it.
func Stored(c shapes.Call, chunks string) []byte {
	sent, end, _ := write(c, chunks, 1)
	return append(sent, end...)
}

func write(c shapes.Call, chunks string, events int) (sent, end []byte, b bill) {
	w := c.NewWriter(head(true))
	r := completions.NewReader(w.Write)
	begun := false
	for len(chunks) > 0 {
		at, read, over := 0, 0, false
		for n := 0; n < events && at < len(chunks) && !over; n++ {
			event, _, _ := strings.Cut(chunks[at:], "\n\n")
			payload := strings.TrimPrefix(event, "data: ")
			b.read([]byte(payload))
			if over = payload == "[DONE]" || b.failure != nil; !over {
				begun = begun || strings.Contains(payload, `"choices":[{`)
			}
			if at = min(at+len(event)+2, len(chunks)); !over {
				read = at
			}
		}
		r.Read([]byte(chunks[:read]))
		sent = append(sent, w.Take()...)
		if chunks = chunks[at:]; over {
			for event := range strings.SplitSeq(chunks, "\n\n") { // the bill may follow
				b.read([]byte(strings.TrimPrefix(event, "data: ")))
			}
			break
		}
	}
	switch {
	case b.failure != nil:
		end = c.Format().Fail(sent, b.failure)
	case begun:
		end = bytes.Clone(w.End())
	}
	return sent, end, b
}

// Whole returns what the client of a call gets for an answer that comes whole.
func Whole(c shapes.Call, answer string) []byte {
	w := c.NewWriter(head(false))
	r := completions.NewReader(w.Write)
	r.ReadWhole([]byte(answer))
	var b bill
	b.read([]byte(strings.TrimSpace(answer)))
	return b.fill(c.Format(), w.End())
}

func head(stream bool) shapes.Head {
	return shapes.Head{RequestID: "req_1", Model: "m", CreatedUnix: 1795256100, InputTokens: 9, Stream: stream}
}
