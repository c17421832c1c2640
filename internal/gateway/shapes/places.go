package shapes

import (
	"regexp"
	"strconv"

	"github.com/purserhq/purser/internal/models/conversation"
)

// A Place says where a turn comes from in the client's body: the paths of the turn, of its texts and images, and of its
// calls.
type Place struct {
	At           string
	Parts, Calls []string
}

// A Draft is a turn that is being read, with the paths of its blocks.
type Draft struct {
	Blocks []conversation.Block
	Place  Place
}

// Add adds a block that stands at a path in the body.
func (d *Draft) Add(b conversation.Block, at string) {
	d.Blocks = append(d.Blocks, b)
	switch b.Kind {
	case conversation.TextBlock, conversation.ImageBlock:
		d.Place.Parts = append(d.Place.Parts, at)
	case conversation.CallBlock:
		d.Place.Calls = append(d.Place.Calls, at)
	}
}

// Says reports whether the turn has more than reasoning.
func (d *Draft) Says() bool { return len(d.Place.Parts)+len(d.Place.Calls) > 0 }

var turnMember = regexp.MustCompile(`^messages\[(\d+)\](?:\.(content|tool_calls)\[(\d+)\])?(.*)$`)

// FindPlace returns the path of what a member of the canonical request names: a turn, one of its texts or images, or
// one of its calls; and what of the name is behind it.
func FindPlace(places []Place, canonical string) (at, rest string, ok bool) {
	m := turnMember.FindStringSubmatch(canonical)
	if m == nil {
		return "", "", false
	}
	i, err := strconv.Atoi(m[1])
	if err != nil || i >= len(places) {
		return "", "", false
	}
	p := &places[i]
	paths := p.Parts
	switch m[2] {
	case "":
		return p.At, m[4], true
	case "tool_calls":
		paths = p.Calls
	}
	j, err := strconv.Atoi(m[3])
	if err != nil || j >= len(paths) {
		return "", "", false
	}
	return paths[j], m[4], true
}

var toolMember = regexp.MustCompile(`^tools\[(\d+)\](.*)$`)

// FindTool returns the path of the tool that a member of the canonical request names, and what of the name is behind
// it. tools are the paths of the canonical tools.
func FindTool(tools []string, canonical string) (at, rest string, ok bool) {
	m := toolMember.FindStringSubmatch(canonical)
	if m == nil {
		return "", "", false
	}
	i, err := strconv.Atoi(m[1])
	if err != nil || i >= len(tools) {
		return "", "", false
	}
	return tools[i], m[2], true
}
