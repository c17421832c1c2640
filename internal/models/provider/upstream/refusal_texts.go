package upstream

import (
	"cmp"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
)

// Bounds of the texts that are counted. A text never becomes a label of a metric.
const (
	maxRefusalTexts = 100
	maxRefusalText  = 200 // characters
)

// otherTexts stands for all texts after the first maxRefusalTexts.
const otherTexts = "(other texts)"

// A RefusalText counts the requests that a provider called invalid with one text, by a status or within a stream. The
// operator sees here whether one of them means the operator's account, which no rule knows yet.
type RefusalText struct {
	Text string // without what it quotes, without numbers, and without ids
	N    int64
	Last time.Time
}

// refusalTexts counts texts. The zero value is ready.
type refusalTexts struct {
	mu   sync.Mutex
	list map[string]*RefusalText
}

// count counts a request that the provider has called invalid, and reports a text that is new.
func (r *refusalTexts) count(e *provider.Error, now time.Time) (text string, isNew bool) {
	if e == nil || e.Refusal == "" {
		return "", false
	}
	text = outlineText(e.Refusal)
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.list[text]
	if one == nil && len(r.list) >= maxRefusalTexts {
		text = otherTexts
		one = r.list[text]
	}
	if one == nil {
		if r.list == nil {
			r.list = map[string]*RefusalText{}
		}
		one, isNew = &RefusalText{Text: text}, true
		r.list[text] = one
	}
	one.N, one.Last = one.N+1, now
	return text, isNew
}

// Refusals returns the texts with which the provider has called requests invalid, the most frequent first.
func (p *Pool) Refusals() (list []RefusalText) {
	p.refusals.mu.Lock()
	defer p.refusals.mu.Unlock()
	for _, one := range p.refusals.list {
		list = append(list, *one)
	}
	slices.SortFunc(list, func(a, b RefusalText) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Text, b.Text))
	})
	return list
}

// noteRefusal counts the text of a refusal, and logs that there is a new one. Operators read the text itself on the
// page of providers: it may quote the request without marks, so it is not logged.
func (p *Pool) noteRefusal(err error) {
	e, _ := errors.AsType[*provider.Error](err)
	if text, isNew := p.refusals.count(e, p.now()); isNew {
		p.log.Warn("provider refusal text is new", "provider", p.Name(), "status", e.Status,
			slog.String("text", Describe(text)))
	}
}

// Numbers and ids are what differs between two refusals for the same reason. A word with digits in it that is long is
// an id; so is one that is longer than any word.
var (
	numbers = regexp.MustCompile(`[0-9]+(?:[.,][0-9]+)*`)
	uuids   = regexp.MustCompile(`[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`)
	words   = regexp.MustCompile(`[0-9A-Za-z_+/=]{9,}`)
)

func outlineIDs(text string) string {
	return words.ReplaceAllStringFunc(uuids.ReplaceAllString(text, "#"), func(word string) string {
		if len(word) > maxWord || strings.ContainsAny(word, "0123456789") {
			return "#"
		}
		return word
	})
}

// maxWord is longer than a name of a member.
const maxWord = 40

// outlineText returns a refusal without what it quotes, which may be a user's, and without numbers and ids.
func outlineText(text string) string {
	var b strings.Builder
	for rest := text; rest != ""; {
		start, mark := findQuote(rest)
		if start < 0 {
			b.WriteString(rest)
			break
		}
		b.WriteString(rest[:start])
		b.WriteString("…")
		rest = rest[start+len(mark[0]):]
		end := strings.Index(rest, mark[1])
		for end >= 0 && mark[1] == "'" && isWordAt(rest, end+1) { // the apostrophe of a word
			next := strings.Index(rest[end+1:], mark[1])
			if next < 0 {
				end = -1
				break
			}
			end += 1 + next
		}
		if end < 0 {
			break // what follows is quoted
		}
		rest = rest[end+len(mark[1]):]
	}
	out := []rune(numbers.ReplaceAllString(outlineIDs(b.String()), "#"))
	return string(out[:min(len(out), maxRefusalText)])
}

// quotes are pairs of marks.
var quotes = [][2]string{{`"`, `"`}, {"`", "`"}, {"'", "'"}, {"“", "”"}, {"‘", "’"}, {"«", "»"}, {"{", "}"}}

// findQuote returns where the first quoted part begins, and its marks; -1 = there is none.
func findQuote(s string) (at int, marks [2]string) {
	at = -1
	for _, q := range quotes {
		i := strings.Index(s, q[0])
		for q[0] == "'" && i > 0 && isWordAt(s, i-1) { // the apostrophe of a word
			next := strings.Index(s[i+1:], q[0])
			if next < 0 {
				i = -1
				break
			}
			i += 1 + next
		}
		if i >= 0 && (at < 0 || i < at) {
			at, marks = i, q
		}
	}
	return at, marks
}

// isWordAt reports whether a letter or digit is at i.
func isWordAt(s string, i int) bool {
	if i >= len(s) {
		return false
	}
	c := s[i] | 0x20
	return 'a' <= c && c <= 'z' || '0' <= s[i] && s[i] <= '9' || s[i] >= 0x80
}
